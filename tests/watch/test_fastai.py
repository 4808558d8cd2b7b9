"""fastai's Learner, as its documentation trains it, in the environment of Ultralytics."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from prunedata.adapters.watched.fastai import _Fit
from prunedata.errors import PrunedataError
from prunedata.store.run_store import read_run
from tests.watch.watched import plain, python_of, rows_told, run_both, watched

pytestmark = pytest.mark.slow  # each test runs whole programs, with their imports
PYTHON = python_of("vision")
IMAGES = """
from pathlib import Path
from PIL import Image
from fastai.vision.all import *

drawn = np.random.default_rng(0)
colors = {{"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}}
names = list(colors)
for at in range(70):
    right = int(drawn.integers(3))
    label = (right + 1) % 3 if at % 10 == 0 else right
    pixels = np.clip(drawn.normal(colors[names[right]], 40, (32, 32, 3)), 0, 255).astype(np.uint8)
    folder = Path("data", names[label])
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(folder / f"{{names[right]}}{{at:03}}.png")
set_seed(0)
dls = ImageDataLoaders.from_folder(
    Path("data"), valid_pct=0.2, seed=0, bs=8, item_tfms=Resize(32), num_workers={workers}
)
learn = vision_learner(dls, resnet18, metrics=accuracy, pretrained=False)
{fit}
torch.save(torch.cat([each.detach().flatten() for each in learn.model.parameters()]), "weights.pt")
"""
TABLE = """
import numpy as np, pandas as pd
from fastai.tabular.all import *

drawn = np.random.default_rng(0)
frame = pd.DataFrame(drawn.normal(size=(90, 3)), columns=["a", "b", "c"])
right = (frame["a"] > 0).astype(int)
wrong = drawn.random(90) < 0.1
frame["label"] = np.where(np.where(wrong, 1 - right, right) == 1, "high", "low")
set_seed(0)
dls = TabularDataLoaders.from_df(frame, path=".", cont_names=["a", "b", "c"], procs=[Normalize], y_names="label",
                                 y_block=CategoryBlock(), valid_idx=list(range(0, 90, 9)), bs=16)
learn = tabular_learner(dls, layers=[16], loss_func={loss})
begin = {{name: value.clone() for name, value in learn.model.state_dict().items()}}
learn.fit({epochs}, 0.02, wd=0)
torch.save(torch.cat([each.detach().flatten() for each in learn.model.parameters()]), "weights.pt")
np.save("wrong.npy", np.flatnonzero(wrong))
"""
BY_HAND = """
set_seed(0)
dls = TabularDataLoaders.from_df(frame, path=".", cont_names=["a", "b", "c"], procs=[Normalize], y_names="label",
                                 y_block=CategoryBlock(), valid_idx=list(range(0, 90, 9)), bs=16)
again = tabular_learner(dls, layers=[16])
network, seen = again.model, []
network.load_state_dict(begin)
again.create_opt()
again.opt.set_hypers(lr=0.02, wd=0)
weights = torch.tensor([1.0, {heavy}])
for epoch in range({epochs}):
    network.train()
    order = []
    own, dls.train.get_idxs = dls.train.get_idxs, lambda: order.extend(own()) or order  # it draws with replacement
    for at, (categories, numbers, labels) in enumerate(dls.train):
        said, classes = network(categories, numbers), labels[:, 0].long()
        losses = -said.log_softmax(1).gather(1, classes[:, None])[:, 0] * weights[classes]
        seen += zip(order[at * 16 :][:16], (losses - losses.mean()).tolist())
        learn.loss_func(said, labels).backward()
        again.opt.step()
        again.opt.zero_grad()
    dls.train.get_idxs = own
np.save("expected.npy", [np.mean([one for at, one in seen if at == place] or [0.0]) for place in range(80)])
np.save("visits.npy", np.bincount([at for at, _ in seen], minlength=80))
torch.save(torch.cat([each.detach().flatten() for each in network.parameters()]), "by-hand.pt")
"""


def images(fit, workers=0):
    return IMAGES.format(fit=fit, workers=workers)


@pytest.mark.parametrize(("loss", "heavy"), [("None", 1.0), ("CrossEntropyLossFlat(weight=tensor([1.0, 3.0]))", 3.0)])
def test_losses_and_weights_are_those_of_a_loop_written_by_hand(loss, heavy, tmp_path):
    done, same = run_both(tmp_path, TABLE.format(loss=loss, epochs=3), by=PYTHON)
    assert same
    assert "watched" not in done.stderr.replace("prunedata watch", ""), done.stderr
    (tmp_path / "hand.py").write_text(TABLE.format(loss=loss, epochs=3) + BY_HAND.format(heavy=heavy, epochs=3))
    hand = plain("hand.py", cwd=tmp_path, by=PYTHON)
    assert hand.returncode == 0, hand.stderr
    assert torch.equal(torch.load(tmp_path / "weights.pt"), torch.load(tmp_path / "by-hand.pt"))
    run = read_run(tmp_path / "train.zarr").state
    visits = np.load(tmp_path / "visits.npy")
    assert visits.sum() == 3 * 80
    np.testing.assert_array_equal(run.visits, visits)
    np.testing.assert_allclose(run.mean_excess, np.load(tmp_path / "expected.npy"), rtol=1e-6, atol=1e-6)


def test_rows_are_those_of_the_frame_that_was_split(tmp_path):
    done, same = run_both(tmp_path, TABLE.format(loss="None", epochs=10), by=PYTHON)
    assert same
    wrong = np.load(tmp_path / "wrong.npy")
    wrong = wrong[wrong % 9 != 0]
    assert np.isin(rows_told(done.stderr)[: len(wrong)], wrong).mean() > 0.7
    lines = [line.split() for line in done.stderr.splitlines() if " high " in line or " low " in line]
    assert len(lines) == 20
    assert float(lines[0][4]) * (1 if lines[0][2] == "low" else -1) > 0  # the column a as the frame has it


def test_wrong_labels_are_listed_with_their_files(tmp_path):
    """Each fit of fine_tune() is a run of its own: that of the head, and that of all layers."""
    done, same = run_both(tmp_path, images("learn.fine_tune(4)", workers=2), by=PYTHON)
    assert same
    assert "watched" not in done.stderr.replace("prunedata watch", ""), done.stderr
    assert [path.name for path in sorted(tmp_path.glob("*.zarr"))] == ["train-2.zarr", "train.zarr"]
    lines = [line.split() for line in done.stderr.splitlines() if line.endswith(".png")][20:]
    assert len(lines) == 20
    for _, _, label, file in lines:
        assert file.startswith(f"{label}/")
        assert (tmp_path / "data" / file).is_file()
    assert sum(label not in file.partition("/")[2] for _, _, label, file in lines[:10]) >= 3
    assert (read_run(tmp_path / "train-2.zarr").state.visits >= 3).all()  # its loader drops the last, short batch


def test_batches_that_a_callback_cancels_are_recorded(tmp_path):
    _, same = run_both(tmp_path, images("learn.fit(2, cbs=GradientAccumulation(16))"), by=PYTHON)
    assert same
    assert read_run(tmp_path / "train.zarr").state.visits.sum() == 2 * 56


@pytest.mark.parametrize(("fit", "why"), [
    ("learn.fit(1, cbs=MixUp)", "made of two"),
    ("learn.lr_find(num_it=3, show_plot=False)", "forgets"),
    ("learn.loss_func = lambda said, labels: CrossEntropyLossFlat()(said, labels); learn.fit(1)", "reduction"),
])  # fmt: skip
def test_what_cannot_be_watched_is_said_once_and_trains_on(fit, why, tmp_path):
    (tmp_path / "train.py").write_text(images(fit))
    done = watched("train.py", cwd=tmp_path, by=PYTHON)
    assert done.returncode == 0, done.stderr
    assert [why in line for line in done.stderr.splitlines() if "watched:" in line or "no longer" in line] == [True]


def test_losses_of_several_views_of_a_sample_are_none_of_its_own():
    """Without fastai: its loss functions flatten tokens and pixels, which are as many as their labels."""
    recorded = []
    fit = _Fit(SimpleNamespace(record=lambda *given: recorded.append(given)), None)
    fit._order = np.arange(4)
    fit._learn = SimpleNamespace(
        dl=SimpleNamespace(bs=4), iter=0, pred=None, loss_not_reduced=nullcontext, yb=(torch.zeros(4, 2),),
        loss_func=lambda *given: torch.arange(8.0),
    )  # fmt: skip
    fit._record()
    assert recorded[0][1].tolist() == [0.5, 2.5, 4.5, 6.5]
    fit._learn.yb = (torch.zeros(4),)
    with pytest.raises(PrunedataError, match="none for each sample"):
        fit._record()
