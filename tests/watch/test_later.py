"""Batches whose losses are computed together have those that they would have alone, and no device is waited for."""

from functools import partial
from inspect import signature

import pytest

pytest.importorskip("torch")
import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from prunedata.adapters.torch.losses import SMALL, Later, Recorder, joined, two_likeliest
from prunedata.adapters.watched.captured import Captured
from prunedata.adapters.watched.functions import watch_functions
from prunedata.errors import PrunedataError


class Recorded:
    def __init__(self):
        self.ids, self.losses, self.sizes = [], [], []

    def __call__(self, ids, losses, logits, labels, sizes):
        assert len(ids) == len(losses) == sum(sizes)
        assert all(each is None or len(each) == len(ids) for each in (logits, labels))
        self.ids += ids.tolist()
        self.losses.append(losses)
        self.sizes += sizes


def cross_entropy(logits, labels):
    return F.cross_entropy(logits, labels, reduction="none"), logits, labels


def losses_alone(logits, labels):
    return cross_entropy(logits, labels)[0], None, None


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from([2, 3]), st.booleans()), min_size=1, max_size=200))
def test_losses_are_those_of_each_batch_alone_and_the_batches_of_a_step_are_one(batches):
    recorded, at, expected, sizes, fresh = Recorded(), 0, [], [], True
    later = Later(recorded)
    for size, classes, ends in batches:
        logits, labels = torch.rand(size, classes), torch.randint(0, classes, (size,))
        expected.append(F.cross_entropy(logits, labels, reduction="none"))
        if fresh:
            sizes.append(0)
        sizes[-1] += size
        later.add(np.arange(at, at + size), (logits, labels), losses_alone, ends=ends)
        at, fresh = at + size, ends
    later.flush()
    assert recorded.ids == list(range(at))
    torch.testing.assert_close(torch.cat(recorded.losses), torch.cat(expected))
    assert recorded.sizes == sizes


def test_the_batches_of_a_step_wait_for_its_end():
    recorded = Recorded()
    later = Later(recorded)
    for at in range(3 * later.batches):
        later.add(np.array([at]), (torch.rand(1, 2), torch.tensor([0])), cross_entropy, ends=False)
    later.flush()
    assert recorded.sizes == [3 * later.batches]


def test_at_most_so_much_waits():
    recorded = Recorded()
    later = Later(recorded)
    for at in range(later.batches + 1):
        later.add(np.array([at]), (torch.rand(1, 2), torch.tensor([0])), cross_entropy)
    assert len(recorded.sizes) == later.batches
    later.add(np.array([99]), (torch.rand(1, (1 << 18) + 1), torch.tensor([0])), cross_entropy)
    assert len(recorded.sizes) == later.batches + 1, "of another shape"
    later.add(np.array([100]), (torch.rand(1, (1 << 18) + 1), torch.tensor([0])), cross_entropy)
    assert len(recorded.sizes) == later.batches + 2, "as large as may wait"


def test_no_device_is_waited_for():
    """Of the device meta, which has no numbers: to look at one is an error."""
    recorded = Recorded()
    later = Later(lambda *given: (two_likeliest(given[2]), recorded(*given)))
    for at in range(2 * later.batches):
        logits, labels = torch.empty(4, 3, device="meta"), torch.empty(4, dtype=torch.int64, device="meta")
        later.add(np.arange(4) + at, (logits, labels), cross_entropy)
    later.flush()
    assert len(recorded.sizes) == 2 * later.batches
    logits = torch.empty(4, 3, device="meta", requires_grad=True)
    labels = torch.empty(4, dtype=torch.int64, device="meta")
    undo = watch_functions()
    with Captured(4) as captured:
        loss = torch.nn.CrossEntropyLoss()(logits * 2, labels)
    losses_of, parts = captured.later(loss)
    assert losses_of(*parts)[0].is_meta
    assert captured.losses(loss).is_meta
    later = Later(recorded)
    for _ in range(2):  # with a number that each step makes anew
        with Captured(4) as captured:
            weight = torch.ones(1, device="meta")
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                logits * 2, torch.empty_like(logits), pos_weight=weight
            )
        losses_of, parts = captured.later(loss)
        later.add(np.arange(4), parts, losses_of)
    undo()


@pytest.mark.filterwarnings("ignore:size_average and reduce args will be deprecated")
@pytest.mark.parametrize(("args", "options"), [
    ((), {"weight": torch.tensor([1.0, 2, 3])}),
    ((torch.tensor([1.0, 2, 3]),), {"label_smoothing": 0.0}),
    ((None, False), {}),
    ((None, None, -100, None, "sum"), {}),
])  # fmt: skip
def test_losses_have_all_their_bits_and_no_weights_however_a_function_is_called(args, options):
    scores, labels = torch.rand(4, 3, dtype=torch.bfloat16, requires_grad=True), torch.tensor([0, 1, 2, 0])
    expected = F.cross_entropy(scores.detach().float(), labels, reduction="none")
    undo = watch_functions()
    with Captured(4) as captured, torch.autocast("cpu"):
        loss = F.cross_entropy(scores, labels, *args, **options)
    undo()
    assert torch.equal(captured.losses(loss), expected)
    losses_of, parts = captured.later(loss)
    assert torch.equal(losses_of(*(joined([part]) for part in parts))[0], expected)


def test_a_training_within_another_takes_no_loss_twice_and_none_of_the_others():
    own, scores = torch.nn.functional.cross_entropy, torch.rand(4, 3, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 0])
    expected = own(scores, labels, reduction="none").detach()

    def loss():
        return torch.nn.functional.cross_entropy(scores, labels)

    undo = watch_functions()
    with Captured(4) as outer:
        undo_inner = watch_functions()
        with Captured(4) as inner:
            of_inner = loss()
        undo_inner()
        of_outer = loss()
    loss()
    undo()
    assert torch.equal(inner.losses(of_inner), expected)
    assert torch.equal(outer.losses(of_outer), expected)
    assert torch.equal(outer.losses(None), expected)
    assert torch.nn.functional.cross_entropy is own


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")  # deprecated, or not supported by newer Pythons
def test_a_function_is_captured_wherever_a_script_has_kept_it_and_it_can_still_be_compiled():
    own, kept, scores = F.cross_entropy, partial(F.cross_entropy), torch.rand(4, 3, requires_grad=True)
    labels, arguments = torch.tensor([0, 1, 2, 0]), signature(own)
    expected = kept(scores, labels)
    undo = watch_functions()
    with Captured(4) as captured:
        loss = kept(scores, labels)
        torch.testing.assert_close(torch.jit.script(torch.nn.CrossEntropyLoss())(scores, labels), expected)
        compiled = torch.compile(torch.nn.CrossEntropyLoss(), backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(scores, labels), expected)
    assert F.cross_entropy is own
    assert signature(own) == arguments
    undo()
    with captured:
        assert torch.equal(own(scores, labels), expected)
    torch.testing.assert_close(captured.losses(None).mean(), expected.detach())  # of one call
    assert torch.equal(loss, expected)


LAYER = torch.nn.Linear(2, 3)
ROWS, TAGS = torch.rand(4, 6, 2), torch.arange(24).view(4, 6) % 3
CHOSEN = torch.tensor([1, 2, 0, 5])[:, None] > torch.arange(6)  # 8 of the tokens, and of one sample none


def captured_losses(loss, batch=()):
    undo = watch_functions()
    with Captured(4, batch) as captured:
        returned = loss()
    undo()
    later = captured.later(returned)  # as the steps of Lightning are recorded
    return captured.losses(returned) if later is None else later[0](*(joined([part]) for part in later[1]))[0]


@pytest.mark.parametrize(("loss", "of_samples"), [
    (lambda: F.cross_entropy(LAYER(ROWS).view(-1, 3), TAGS.view(-1)), lambda each: each.mean(1)),
    (
        lambda: F.cross_entropy(LAYER(ROWS)[:, 1:].reshape(-1, 3), TAGS[:, 1:].reshape(-1)),
        lambda each: each[:, 1:].mean(1),
    ),
    (lambda: F.nll_loss(LAYER(ROWS).flatten(0, 1).double().log_softmax(1), TAGS.flatten()), lambda each: each.mean(1)),
    (lambda: F.cross_entropy(LAYER(ROWS.flatten(0, 1)), TAGS.flatten()), lambda each: each.mean(1)),
    (lambda: F.cross_entropy(LAYER(ROWS).transpose(1, 2), TAGS), lambda each: each.mean(1)),
    (lambda: sum(F.cross_entropy(LAYER(ROWS[:, at]), TAGS[:, at]) for at in (0, 1)), lambda each: each[:, :2].sum(1)),
])  # fmt: skip
def test_losses_of_tokens_belong_to_the_samples_that_have_them(loss, of_samples):
    each = F.cross_entropy(LAYER(ROWS).transpose(1, 2), TAGS, reduction="none").detach()
    torch.testing.assert_close(captured_losses(loss), of_samples(each))


@pytest.mark.parametrize("loss", [
    lambda: F.cross_entropy(LAYER(torch.cat([ROWS[:, 0], ROWS[:, 1]])), TAGS[:, 0].repeat(2)),
    lambda: F.cross_entropy(LAYER(torch.stack([ROWS[:, 0], ROWS[:, 1]])).view(-1, 3), torch.cat([TAGS[:, 0]] * 2)),
    lambda: F.mse_loss(LAYER(torch.cat([ROWS[:, 0], ROWS[:, 1]])), torch.zeros(8, 3)),
    lambda: F.cross_entropy(LAYER(ROWS).transpose(0, 1).reshape(-1, 3), TAGS.T.reshape(-1)),
    lambda: F.cross_entropy(LAYER(ROWS)[CHOSEN], TAGS[CHOSEN]),
    lambda: F.cross_entropy(LAYER(torch.cat([ROWS[:, 0], ROWS[:, 1]])), TAGS[:, 0].repeat(2))
    + F.kl_div(LAYER(ROWS[:, 0]).log_softmax(1), LAYER(ROWS[:, 1]).softmax(1), reduction="batchmean"),
], ids=["views", "stacked", "targets", "time first", "chosen", "compared views"])  # fmt: skip
def test_losses_in_an_order_that_is_unknown_are_no_samples(loss):
    with pytest.raises(PrunedataError, match=r"which belong to which sample is unknown: .*once for each view"):
        captured_losses(loss)


SQUARE, TURNED = ROWS[:, :4], [TAGS[:, :4], {"more": TAGS[:, :5]}]


@pytest.mark.parametrize(("loss", "is_turned"), [
    (lambda: F.cross_entropy(LAYER(SQUARE.transpose(0, 1).contiguous()).view(-1, 3), TAGS[:, :4].T.reshape(-1)), True),
    (lambda: F.cross_entropy(LAYER(SQUARE.transpose(0, 1)).permute(0, 2, 1), TAGS[:, 1:5].T), True),
    (lambda: F.cross_entropy(LAYER(SQUARE).view(-1, 3), TAGS[:, 1:5].reshape(-1)), False),
    (lambda: F.cross_entropy(LAYER(SQUARE).view(-1, 3), TAGS[:, :4].reshape(-1) * 2 % 3), False),
])  # fmt: skip
def test_as_many_places_as_samples_hide_no_order(loss, is_turned):
    """The places come first, and the shapes do not show it: the target is the batch's, turned."""
    if is_turned:
        with pytest.raises(PrunedataError, match=r"16 losses for 4 samples.* have the samples first"):
            captured_losses(loss, TURNED)
    else:
        assert torch.equal(captured_losses(loss, TURNED), captured_losses(loss))


SIGNS = 2 * F.one_hot(TAGS[:, 0], 3) - 1


@pytest.mark.parametrize(("function", "targets"), [
    (F.soft_margin_loss, SIGNS), (F.hinge_embedding_loss, SIGNS), (F.multi_margin_loss, TAGS[:, 0]),
    (F.multilabel_margin_loss, SIGNS), (F.multilabel_soft_margin_loss, SIGNS.clamp(min=0)),
])  # fmt: skip
def test_losses_of_margins_are_those_of_samples(function, targets):
    each = function(LAYER(ROWS[:, 0]), targets, reduction="none").detach()
    torch.testing.assert_close(captured_losses(lambda: function(LAYER(ROWS[:, 0]), targets)), each.view(4, -1).mean(1))


LABELS, MIXED = TAGS[:, 1], TAGS[:, 1].roll(1)


@pytest.mark.parametrize(("targets", "batch"), [
    ([LABELS, MIXED], ()), ([MIXED, LABELS], [ROWS, LABELS]), ([LABELS, LABELS.clone()], ()),
    ([TAGS[:, 2:].flatten(), TAGS[:, 2:].roll(1, 0).flatten()], ()),
])  # fmt: skip
@pytest.mark.parametrize("of_views", [False, True])
def test_labels_of_samples_that_were_mixed_in_do_not_count(targets, batch, of_views):
    """As mixup does, where one loss is over the same outputs as another, with the same labels in another order."""

    def loss():
        outputs = LAYER(ROWS[:, : len(targets[0]) // 4])
        ours, theirs = ([outputs.view(-1, 3)] * 2) if not of_views else (outputs.view(-1, 3), outputs.view(-1, 3))
        return 0.3 * F.cross_entropy(ours, targets[0]) + 0.7 * F.cross_entropy(theirs, targets[1])

    own = targets[1] if batch else targets[0]
    each = F.cross_entropy(LAYER(ROWS[:, : len(own) // 4]).view(-1, 3), own, reduction="none").detach()
    torch.testing.assert_close(captured_losses(loss, batch), each.view(4, -1).mean(1))


@pytest.mark.parametrize("loss", [
    lambda scores: [F.cross_entropy(scores, LABELS), F.cross_entropy(scores, LABELS, label_smoothing=0.1)],
    lambda scores: [F.cross_entropy(scores, LABELS), F.cross_entropy(scores, (LABELS + 1) % 3)],
    lambda scores: [F.cross_entropy(scores, LABELS), F.cross_entropy(scores.flip(0), MIXED)],
    lambda scores: [F.mse_loss(scores[:, at], torch.ones(4)) for at in (0, 1)],
], ids=["options", "labels", "outputs", "columns"])  # fmt: skip
def test_other_losses_of_one_step_are_added(loss):
    expected = [captured_losses(lambda at=at: loss(LAYER(ROWS[:, 1]))[at]) for at in (0, 1)]
    torch.testing.assert_close(captured_losses(lambda: sum(loss(LAYER(ROWS[:, 1])))), sum(expected))


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.looks = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.looks += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


def train(steps, folder, monkeypatch, *, watched, changes=lambda trainer: None):
    """Train by a Trainer of so many steps, and return it; ``changes`` is called with it before."""
    pytest.importorskip("transformers")
    from benchmarks.overhead.watching import transformers_trainer
    from prunedata.cli.watching.session import Session, Watch

    monkeypatch.setenv("PRUNEDATA_WATCH", str(folder))
    Session.current.cache_clear()
    trainer, own, args, options, _ = transformers_trainer(steps, folder)
    changes(trainer)
    if not watched:
        own(trainer, *args, **options)
        return trainer
    with Watch("huggingface.watching", trainer, own, args, options) as given:
        own(trainer, *given.args, **given.options)
    (run,) = Session.current().runs
    assert (run.pruner.visits == 1).all()
    Session.current().runs.clear()
    return trainer


def looks(steps, folder, monkeypatch, *, watched):
    """How often a training looks at a number that a device may have."""
    with Operations() as operations:
        train(steps, folder, monkeypatch, watched=watched)
    return operations.looks


def test_the_batches_of_a_step_are_one_where_some_are_large(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    from prunedata.adapters.huggingface import watching

    sizes, own_step, own_add = [], watching._Training._step, Recorder.add

    def step(*given, **options):
        monkeypatch.setattr(watching, "SMALL", 0 if watching.SMALL else SMALL)
        return own_step(*given, **options)

    def add(recorder, ids, losses, logits, several):
        sizes.extend(several)
        own_add(recorder, ids, losses, logits, several)

    monkeypatch.setattr(watching._Training, "_step", step)
    monkeypatch.setattr(Recorder, "add", add)
    train(
        12,
        tmp_path,
        monkeypatch,
        watched=True,
        changes=lambda one: vars(one.args).update(gradient_accumulation_steps=3),
    )
    assert sizes == [48] * 4


def test_labels_that_no_column_has_are_those_of_the_batches_where_samples_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PRUNEDATA_WATCH_OPTIONS", "leave-out")
    trainer = train(4, tmp_path, monkeypatch, watched=True)
    assert trainer.pruner.leave_out == "weight"
    assert trainer.pruner.arrays["label"].tolist() == [2 + row["labels"] for row in trainer.train_dataset]


@pytest.mark.parametrize("options", ["", "leave-out"])
def test_a_loss_that_is_nan_is_said_once_and_the_training_goes_on(options, tmp_path, monkeypatch, capsys):
    def spoil(trainer):
        own = trainer.model.forward

        def forward(points, labels):
            outputs = own(points, labels)
            if trainer.state.global_step in (1, 2):
                outputs["logits"] = outputs["logits"].index_fill(0, torch.tensor([0]), torch.nan)
            return outputs

        trainer.model.forward = forward

    monkeypatch.setenv("PRUNEDATA_WATCH_OPTIONS", options)
    train(4, tmp_path, monkeypatch, watched=True, changes=spoil)
    assert capsys.readouterr().err.count("a loss that is NaN or infinite counts as the mean of its batch") == 1


@pytest.mark.slow
def test_a_watched_step_looks_at_no_number_that_an_unwatched_one_does_not(tmp_path, monkeypatch):
    added = [
        looks(steps, tmp_path, monkeypatch, watched=True) - looks(steps, tmp_path, monkeypatch, watched=False)
        for steps in (270, 320)
    ]
    assert added[0] == added[1], "of 50 steps more, which all lie between the same two flushes"


def test_a_method_that_the_user_has_replaced_is_called_and_stays_replaced(tmp_path, monkeypatch):
    calls = []

    def replace(trainer):
        own = trainer.training_step

        def mine(*given):
            calls.append(given)
            return own(*given)

        trainer.training_step = mine

    trainer = train(4, tmp_path, monkeypatch, watched=True, changes=replace)
    assert len(calls) == 4
    assert trainer.training_step.__name__ == "mine"
