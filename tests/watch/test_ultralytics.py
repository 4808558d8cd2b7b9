"""Ultralytics' YOLO, as its documentation trains it, in an environment of its own: torchvision needs another torch."""

import os

import numpy as np
import pytest
import torch

from prunedata.store.run_store import read_run
from tests.watch.watched import plain, python_of, run_both, watched

pytestmark = pytest.mark.slow  # each test runs whole programs, with their imports
PYTHON = python_of("vision")
SCRIPT = """
import os, sys
os.environ |= {"YOLO_OFFLINE": "true", "YOLO_CONFIG_DIR": os.path.abspath("config")}
from pathlib import Path
import numpy as np, torch
from PIL import Image, ImageDraw
from ultralytics import YOLO

def classified():
    random = np.random.default_rng(0)
    colors = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
    names = list(colors)
    for part, many in (("train", 60), ("val", 6)):
        for at in range(many):
            right = int(random.integers(3))
            label = (right + 1) % 3 if part == "train" and at % 10 == 0 else right
            pixels = np.clip(random.normal(colors[names[right]], 40, (32, 32, 3)), 0, 255).astype(np.uint8)
            folder = Path("data", part, names[label])
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{names[right]}{at:03}.png")
    return "data"

def drawn():
    random = np.random.default_rng(0)
    for part, many in (("train", 22), ("val", 4)):
        for kind in ("images", "labels"):
            Path("data", kind, part).mkdir(parents=True, exist_ok=True)
        for at in range(many):
            image, lines = Image.new("RGB", (64, 64), (90, 90, 90)), []
            for _ in range(at % 4):
                kind, (x, y) = int(random.integers(2)), random.uniform(0.2, 0.8, 2)
                corners = [(x - 0.15, y - 0.15), (x + 0.15, y - 0.15), (x + 0.15, y + 0.15), (x - 0.15, y + 0.15)]
                draw = ImageDraw.Draw(image)
                box = [64 * one for place in (corners[0], corners[2]) for one in place]
                (draw.ellipse if kind else draw.rectangle)(box, fill=((200, 30, 30), (30, 200, 30))[kind])
                polygon = [one for place in corners for one in place]
                shape = [x, y, 0.3, 0.3] if model.task == "detect" else polygon
                lines.append(" ".join([str(kind), *(f"{one:.4f}" for one in shape)]))
            image.save(f"data/images/{part}/{at:03}.png")
            Path(f"data/labels/{part}/{at:03}.txt").write_text("\\n".join(lines))
    Path("data.yaml").write_text(
        f"path: {os.path.abspath('data')}\\ntrain: images/train\\nval: images/val\\nnames: [square, circle]\\n"
    )
    return "data.yaml"

model = YOLO(sys.argv[1])
data = (classified if model.task == "classify" else drawn)()
by_hand = {}
"""
BY_HAND = """
from ultralytics.models.yolo.classify import ClassificationTrainer
from ultralytics.models.yolo.detect import DetectionTrainer
from ultralytics.models.yolo.segment import SegmentationTrainer

kinds = {"classify": ClassificationTrainer, "detect": DetectionTrainer, "segment": SegmentationTrainer}

class ByHand(kinds[model.task]):
    def build_dataset(self, *args, **options):
        dataset = super().build_dataset(*args, **options)
        if self.args.task != "classify":
            return dataset
        class Numbered(type(dataset)):
            def __getitem__(self, place):
                return super().__getitem__(place) | {"place": str(place)}
        dataset.__class__ = Numbered
        return dataset

    def _do_train(self):
        self._setup_train()
        dataset, network, seen = self.train_loader.dataset, self.model, []
        if self.args.task != "classify":
            self._close_dataloader_mosaic()
            self.train_loader.reset()
        for epoch in range(self.epochs):
            self.epoch = epoch
            self._model_train()
            for batch in self.train_loader:
                places = batch.get("place") or [dataset.im_files.index(one) for one in batch["im_file"]]
                batch = self.preprocess_batch(batch)
                said = network(batch["img"])
                self.loss_items = network.loss(batch, said)[1]  # makes the criterion
                if self.args.task == "classify":
                    loss, losses = network.loss(batch, said)[0], self.of_classes(said, batch)
                else:
                    loss, losses = self.of_objects(network.criterion, said, batch)
                seen += [(int(place), float(one - losses.mean())) for place, one in zip(places, losses)]
                self.optimizer.zero_grad()
                loss.sum().backward()
                self.optimizer_step()
            if hasattr(network.criterion, "update"):
                network.criterion.update()
            self.validator(self)  # draws random numbers
        np.save("expected.npy", [np.mean([one for at, one in seen if at == place]) for place in range(len(dataset))])
        torch.save(torch.cat([each.detach().flatten() for each in network.parameters()]), "by-hand.pt")
        os._exit(0)

    def of_classes(self, said, batch):
        return -said.detach().log_softmax(1).gather(1, batch["cls"][:, None])[:, 0]

    def of_objects(self, criterion, said, batch):
        if hasattr(criterion, "one2one"):
            weights = {"one2many": criterion.o2m, "one2one": criterion.o2o}
            parts = [(getattr(criterion, name), said[name], weight) for name, weight in weights.items()]
        else:
            parts = [(criterion, said, 1.0)]
        loss, losses = 0, 0
        for one, said, weight in parts:
            scores, own = [], one.assigner
            def assigner(*args, **options):
                found = own(*args, **options)
                scores.append(found[2])
                return found
            one.assigner = assigner
            whole = one.loss(said, batch)[0]
            places = range(len(batch["img"]))
            alone = torch.stack([one.loss(*self.alone(said, batch, place))[0].sum().detach() for place in places])
            one.assigner = own
            if self.args.task == "detect":  # what an image gives to the loss of its batch
                shares = torch.stack([each.sum().clamp(min=1) for each in scores[1:]])
                torch.testing.assert_close(
                    whole.sum().detach() / len(alone) * scores[0].sum().clamp(min=1), (alone * shares).sum(),
                    rtol=1e-5, atol=1e-5,
                )
            loss, losses = loss + weight * whole, losses + weight * alone
        return loss, losses

    def alone(self, said, batch, place):
        whole = {name: value for name, value in said.items() if name != "feats" and torch.is_tensor(value)}
        cut = {name: value[place : place + 1].detach() for name, value in whole.items()}
        if isinstance(said.get("proto"), tuple):
            cut["proto"] = tuple(one[place : place + 1].detach() for one in said["proto"])
        cut["feats"] = [one[place : place + 1].detach() for one in said["feats"]]
        objects = (batch["batch_idx"] == place).nonzero()[:, 0]
        mine = {name: batch[name][objects] for name in ("cls", "bboxes")} | {"batch_idx": torch.zeros(len(objects))}
        return cut, mine | {name: batch[name][place : place + 1] for name in ("masks", "sem_masks") if name in batch}

if sys.argv[-1] == "by-hand":
    by_hand = {"trainer": ByHand}
"""
TRAINS = """
results = model.train(data=data, imgsz=64, batch=8, plots=False, {options}, **by_hand)
torch.save(torch.cat([each.detach().flatten() for each in model.trainer.model.parameters()]), "weights.pt")
"""
PLAIN = """
    epochs=12, optimizer="AdamW", lr0=0.002, warmup_epochs=0, val=False,
    auto_augment=None, hsv_h=0.0, hsv_s=0.0, hsv_v=0.0, erasing=0.0"""
STEADY = "epochs=2, optimizer='SGD', warmup_epochs=0, lr0=0.01, lrf=1.0, nbs=8"


def script(options, more=""):
    return SCRIPT + more + TRAINS.format(options=options)


@pytest.mark.parametrize("model", ["yolov8n-cls.yaml", "yolov8n.yaml", "yolo26n.yaml", "yolo26n-seg.yaml"])
def test_losses_and_weights_are_those_of_a_loop_written_by_hand(model, tmp_path):
    done, same = run_both(tmp_path, script(STEADY, BY_HAND), model, by=PYTHON)
    assert same
    assert "watched" not in done.stderr, done.stderr
    hand = plain("train.py", model, "by-hand", cwd=tmp_path, by=PYTHON)
    assert hand.returncode == 0, hand.stderr
    assert torch.equal(torch.load(tmp_path / "weights.pt"), torch.load(tmp_path / "by-hand.pt"))
    run = read_run(tmp_path / "train.zarr").state
    assert (run.visits == 2).all()
    expected = np.load(tmp_path / "expected.npy")
    np.testing.assert_allclose(run.mean_excess, expected, atol=1e-6 * max(1, np.abs(expected).max()))


def test_wrong_labels_are_listed_with_their_files(tmp_path):
    done, same = run_both(tmp_path, script(PLAIN), "yolov8n-cls.yaml", by=PYTHON)
    assert same, done.stderr
    lines = [line.split() for line in done.stderr.splitlines() if line.endswith(".png")]
    assert len(lines) == 20
    files = sorted(tmp_path.glob("data/train/*/*.png"))
    for row, _, label, file in lines:
        assert files[int(row)] == tmp_path / "data" / "train" / file
        assert file.startswith(f"{label}/")
    assert sum(label not in file.partition("/")[2] for _, _, label, file in lines[:6]) >= 5
    command = ("yolo", "classify", "train", "model=yolov8n-cls.yaml", "data=data", "epochs=1", "imgsz=32")
    path = os.pathsep.join([os.path.dirname(PYTHON), os.environ["PATH"]])
    done = watched(*command, cwd=tmp_path, by=PYTHON, PATH=path, YOLO_OFFLINE="true", YOLO_CONFIG_DIR="config")
    assert done.returncode == 0, done.stderr
    assert (read_run(tmp_path / "yolo.zarr").state.visits == 1).all()


def test_images_that_are_made_of_several_are_not_recorded(tmp_path):
    """As the last epochs are without mosaics; before them, those that happen to be of one image."""
    done, same = run_both(tmp_path, script("epochs=4, close_mosaic=1"), "yolov8n.yaml", by=PYTHON)
    assert same, done.stderr
    run = read_run(tmp_path / "train.zarr").state
    assert len(run.history) == 1
    assert (run.visits == 1).all()


@pytest.mark.parametrize(("model", "options", "why"), [
    ("yolov8n.yaml", "epochs=2, close_mosaic=0", "nothing was recorded: each image"),
    ("yolov8n-obb.yaml", "epochs=1", "not watched: of Ultralytics the tasks"),
])  # fmt: skip
def test_what_cannot_be_watched_is_said_once(model, options, why, tmp_path):
    (tmp_path / "train.py").write_text(script(options))
    done = watched("train.py", model, cwd=tmp_path, by=PYTHON)
    assert done.returncode == 0, done.stderr
    assert [why in line for line in done.stderr.splitlines() if "prunedata: n" in line] == [True]
