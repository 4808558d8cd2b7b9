"""prunedata suspects, compare and advise: what they print, of real stores."""

import csv

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError
from tests.store.stored_runs import contents

SAMPLES, EPOCHS = 120, 12
SCHEDULE = Schedule(60, 30, 12, 5, 4)
TURN = 6
"""The epoch from which the validation figure falls."""


def expected_score():
    """How far the losses of :func:`watch` that stay high lie above their batches' means, in the mean of all epochs."""
    rest = np.array([i for i in range(SAMPLES) if i % 4])
    means = [(4.0 * 30 + (2.5 / (1 + epoch) + 0.001 * np.sin(rest)).sum()) / SAMPLES for epoch in range(EPOCHS)]
    return float(np.mean([4.0 - mean for mean in means]))


SCORE = expected_score()


def watch(place, wrong=range(0, SAMPLES, 4), epochs=EPOCHS, samples=SAMPLES, turn=None, **options):
    """A run in which the samples in `wrong` never get better than a guess; the others do, in time.

    If a `turn` is given, so are validation figures, which fall from there on; with 0 they rise to the end.
    """
    pruner = Pruner(samples, SCHEDULE, prune=30, store=place, leave_out="nothing", **options)
    ids = np.arange(samples)
    for number in range(epochs):
        pruner.begin_epoch()
        pruner.observe(np.where(np.isin(ids, list(wrong)), 4.0, 2.5 / (1 + number) + 0.001 * np.sin(ids)), ids)
        if turn is not None:
            pruner.validated(50 + number - 4 * max(0, number - turn) * bool(turn))
        pruner.end_epoch()
    return place


@pytest.fixture
def store(tmp_path):
    return watch(tmp_path / "run.zarr", classes=10)


def table(lines):
    """The rows of an aligned table: all of one width, and every column ends in one place."""
    assert len({len(line) for line in lines}) == 1
    return [line.split() for line in lines]


def test_suspects_as_a_table(prints, store):
    before = contents(store)
    out = prints(f"suspects {store} --top 7")
    lines = out.splitlines()
    assert lines[0] == "most suspect of 120 samples after 12 epochs"
    assert table(lines[1:]) == [
        ["sample", "hits", "high", "visits", "score"],
        *([str(i), "12", "12", "12", f"{SCORE:.3f}"] for i in range(0, 28, 4)),
    ]
    assert contents(store) == before


@pytest.mark.parametrize("named", [False, True])
def test_suspects_say_what_they_look_like(prints, prints_json, tmp_path, named):
    """Class n is called by its letter; the network takes the first samples for the class after theirs."""
    labels = np.arange(SAMPLES) % 3
    names = np.array(["ape", "bear", "cat, or \x1b[31m"])
    run = Pruner(SAMPLES, SCHEDULE, prune=30, store=tmp_path / "run.zarr", labels=names[labels] if named else labels)
    ids = np.arange(SAMPLES)
    run.begin_epoch()
    run.observe(np.where(ids < 4, 4.0, 0.1) - ids * 1e-4, ids, logits=np.eye(3)[(labels + (ids < 4)) % 3])
    run.end_epoch()
    out = prints(f"suspects {tmp_path / 'run.zarr'} --top 4 -o {tmp_path / 'a.csv'}")
    head, *rows = out.splitlines()[1:6]
    assert head.split()[-3:] == ["labeled", "looks", "like"]
    label, guess = ("ape", "bear") if named else ("0", "1")
    assert rows[0].split()[-2:] == [label, guess]
    assert "\x1b" not in out
    with open(tmp_path / "a.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["guess"] for row in found] == [str((names if named else range(3))[(at + 1) % 3]) for at in range(4)]
    found = prints_json(f"suspects {tmp_path / 'run.zarr'} --top 4")
    assert [row["label"] for row in found["suspects"]] == [
        (names.tolist() if named else range(3))[at % 3] for at in range(4)
    ]


def test_suspects_of_a_run_that_was_not_told_its_classes(prints, prints_json, tmp_path):
    out = prints(f"suspects {watch(tmp_path / 'run.zarr')} --top 2")
    assert out.splitlines()[1].split() == ["sample", "hits", "visits", "score"]
    first = {"id": 0, "hits": 12, "visits": 12, "score": pytest.approx(SCORE), "pruned": 0}
    assert prints_json(f"suspects {tmp_path / 'run.zarr'}")["suspects"][0] == first


def test_suspects_in_json_with_classes(prints, prints_json, store, tmp_path):
    labels = np.arange(SAMPLES) % 8  # a quarter of the samples is wrong: all of class 0 and 4
    np.save(tmp_path / "labels.npy", labels)
    command = f"suspects {store} --top 30 --labels {tmp_path / 'labels.npy'}"
    found = prints_json(command)
    assert (found["samples"], found["epochs"], len(found["suspects"])) == (120, 12, 30)
    first = {"id": 0, "hits": 12, "high": 12, "visits": 12, "score": pytest.approx(SCORE), "pruned": 0, "label": 0}
    assert found["suspects"][0] == first
    assert [(one["label"], one["suspects"], one["lift"]) for one in found["classes"][:3]] == [
        (0, 15, 4.0),
        (4, 15, 4.0),
        (1, 0, 0.0),
    ]
    out = prints(command)
    lines = out.splitlines()
    rows = table(lines[lines.index("where they gather") + 1 :])
    assert rows[0] == ["class", "suspects", "samples", "of", "suspects", "of", "samples", "lift"]
    assert rows[1] == ["0", "15", "15", "50.0%", "12.5%", "4.00"]


def test_a_label_of_minus_one_is_shown(prints, tmp_path):
    """As in data whose classes are -1 and 1."""
    place = watch(tmp_path / "run.zarr", labels=np.where(np.arange(SAMPLES) % 8, 1, -1))
    assert [line.split()[-1] for line in prints(f"suspects {place} --top 2").splitlines()[1:]] == ["labeled", "-1", "1"]


def test_of_many_classes_the_first_are_printed(prints, prints_json, store, tmp_path):
    labels = [f"{number} of a name that is far longer than a terminal is wide" for number in range(SAMPLES)]
    np.save(tmp_path / "labels.npy", labels)
    command = f"suspects {store} --labels {tmp_path / 'labels.npy'}"
    lines = prints(command).splitlines()
    rows = lines[lines.index("where they gather") + 2 : -1]
    assert (len(rows), lines[-1]) == (20, "... and 100 more classes, which --json has")
    assert max(map(len, lines)) < 100
    assert all("..." in row for row in rows)
    assert len(prints_json(command)["classes"]) == SAMPLES


@pytest.mark.parametrize(("top", "number"), [("0.25", 30), ("25%", 30), ("30", 30), ("1000", SAMPLES)])
def test_top_is_a_number_or_a_fraction_and_at_most_all(prints_json, store, top, number):
    assert len(prints_json(f"suspects {store} --top {top}")["suspects"]) == number
    assert prints_json(f"compare {store} {store} --top {top}")["top"] == number


def test_suspects_are_written(prints, store, tmp_path):
    out = prints(f"suspects {store} --top 3 --out {tmp_path / 'ids.txt'}")
    assert (tmp_path / "ids.txt").read_text() == "0\n4\n8\n"
    assert out.splitlines()[-1] == f"3 samples -> {tmp_path / 'ids.txt'}"
    prints(f"suspects {store} --top 2 --out {tmp_path / 'some.csv'} --json")
    head, *rows = (tmp_path / "some.csv").read_text().splitlines()
    assert head == "id,hits,high,visits,score,pruned"
    for row, sample in zip(rows, (0, 4), strict=True):
        assert [float(cell) for cell in row.split(",")] == pytest.approx([sample, 12, 12, 12, SCORE, 0])


def test_compare_of_runs(prints, prints_json, store, tmp_path):
    other = watch(tmp_path / "other.zarr", wrong=range(0, SAMPLES, 8))
    found = prints_json(f"compare {store} {store}")
    assert (found["samples"], found["compared"], found["top"], found["jaccard"]) == (120, 120, 12, 1.0)
    assert found["rank_correlation"] == pytest.approx(1)
    found = prints_json(f"compare {store} {other} --top 30")
    assert 0.3 < found["jaccard"] < 0.7
    assert found["jaccard_by_chance"] < found["jaccard"]
    out = prints(f"compare {store} {other} --top 30")
    facts = {line[:27].strip(): line[27:].split() for line in out.splitlines()}
    assert facts["samples compared"] == ["120", "of", "120"]
    assert facts["most suspect in each"] == ["30"]
    assert facts["overlap (Jaccard)"][0] == f"{found['jaccard']:.3f}"
    assert facts["overlap (Jaccard)"][-1] == f"{found['jaccard_by_chance']:.3f}"
    assert facts["rank correlation (Spearman)"][0] == f"{found['rank_correlation']:.3f}"


def test_compare_of_runs_that_know_nothing(prints, tmp_path):
    for name in ("a", "b"):
        watch(tmp_path / name, wrong=range(SAMPLES))
    out = prints(f"compare {tmp_path / 'a'} {tmp_path / 'b'}")
    assert "rank correlation (Spearman)      -  all scores of a run are equal" in out.splitlines()


def test_advice_to_prune(prints, prints_json, tmp_path):
    place = watch(tmp_path / "run.zarr", turn=TURN)
    out = prints(f"advise {place}")
    first, _, *lines = out.splitlines()
    facts = {line[:19].strip(): line[19:].strip() for line in lines[: lines.index("")]}
    found = prints_json(f"advise {place}")
    assert first.startswith(f"{found['doubted']} of 120 labels look wrong. The validation figure is ")
    assert facts == {
        "advice": "prune",
        "memorization seen": f"in epoch {found['onset']}",
        "lost since": f"{found['lost']:.3g}",
        "policy": "RecentLoss(decay=0.75)",
        "leave out": f"{found['prune']} of 120 samples",
        "when": f"every epoch from {found['onset'] + 1} to 59",
        "sample visits saved": f"{found['saving_percent']:.2f} %",
        "or train shorter": f"{found['shorter']} epochs, without pruning",
    }
    assert lines[lines.index("") + 1] == "because"
    assert lines[lines.index("because") + 1].startswith(f"  {found['prune']} of 120 labels look wrong")
    assert found["verdict"] == "prune"
    assert found["prune"] == 30
    assert TURN < found["onset"] < EPOCHS
    assert Schedule.from_dict(found["schedule"]) == Schedule.steady(60, found["onset"] + 1)


@pytest.mark.parametrize(
    ("options", "advice", "told"),
    [
        ({}, "watch on", "No epoch has a validation figure"),
        ({"turn": 0}, "watch on", "12 of 12 epochs have a validation figure"),
        ({"turn": 0, "epochs": 60}, "prune", "30 of 120 labels look wrong"),
        ({"epochs": 60}, "prune", "30 of 120 labels look wrong"),
        ({"epochs": 60, "wrong": range(SAMPLES)}, "look at the suspects", "0 of 120 labels look wrong"),
    ],
)
def test_advice_without_a_turn(prints, tmp_path, options, advice, told):
    place = watch(tmp_path / "run.zarr", **options)
    out = prints(f"advise {place}")
    assert out.splitlines()[2].split(maxsplit=1) == ["advice", advice]
    assert told in out


def test_advice_of_a_finished_run_is_for_the_next_one(prints, tmp_path):
    place = watch(tmp_path / "run.zarr", epochs=60, turn=TURN)
    out = prints(f"advise {place}")
    lines = out.splitlines()
    assert lines[2].split(maxsplit=1) == ["advice", "prune"]
    assert lines[3].split(maxsplit=1) == ["for", "the next run on these data: this one is finished"]


def test_a_run_that_has_just_begun(prints_json, refuses, tmp_path):
    place = watch(tmp_path / "run.zarr", epochs=0, classes=10)
    assert prints_json(f"advise {place}")["verdict"] == "watch"
    for command in (f"suspects {place}", f"compare {place} {place}"):
        assert refuses(command).startswith("prunedata: error: Expected samples that were ")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("suspects {run} --label-column label", "Expected --labels with --label-column"),
        *(
            (f"suspects {{run}} --top {top}", "argument --top: Expected top to be a number from 1, or a fraction")
            for top in ("0", "-1", "1.0", "2.5", "0%", "100%")
        ),
        ("inspect {run} --top 0", "argument --top: Expected top to be a number from 1"),
        ("compare {run} {run} --top 0", "argument --top: Expected top to be a number from 1"),
        ("suspects {run} --labels {tmp}/none.npy", "No such file"),
        ("suspects {run} --labels {tmp}/short.npy -o {tmp}/../{tmp.name}/short.npy", "which holds the labels"),
        ("suspects {run} -o {tmp}/none/ids.txt", "none/ids.txt. Got No such file"),
        ("suspects {run} -o {tmp}", "Got Is a directory: name a file that can be written"),
        ("suspects {run} --labels {tmp}/text.npy", "as numpy.save writes them"),
        ("suspects {run} --labels {tmp}/short.npy", "Expected labels of shape (120,)"),
        ("suspects {run} --labels {tmp}/float.npy", "integers or text"),
        ("suspects {tmp}/nothing.zarr", "Got nothing"),
        ("suspects {tmp}", ": name the run's own folder, such as run.zarr, or for a new run an empty place"),
        ("compare {run} {tmp}/small.zarr", "Got one of 120 and one of 40, and not all of them have keys"),
        ("compare {run} {run} --top some", "--top: Expected a number, or a fraction such as 0.1 or 10%. Got 'some'"),
        ("compare {run}", "the following arguments are required: STORE"),
        ("advise {tmp}/nothing.zarr", "Got nothing"),
    ],
)
def test_errors_are_one_line(refuses, store, tmp_path, command, message):
    (tmp_path / "text.npy").write_text("no array")
    np.save(tmp_path / "short.npy", np.arange(7))
    np.save(tmp_path / "float.npy", np.zeros(SAMPLES))
    watch(tmp_path / "small.zarr", samples=40, epochs=1)
    assert message in refuses(command.format(run=store, tmp=tmp_path))
    assert not (tmp_path / "nothing.zarr").exists()


FOLDS = [[row for row in range(SAMPLES) if row % 3 != fold] for fold in range(3)]


@pytest.fixture
def folds(tmp_path):
    """Three runs, each on two thirds of the rows; those of every fourth row are wrong."""
    return [
        watch(tmp_path / f"{number}.zarr", [at for at, row in enumerate(rows) if row % 4 == 0], samples=80, keys=rows)
        for number, rows in enumerate(FOLDS)
    ]


def test_suspects_of_folds_are_one_list(prints, prints_json, folds, tmp_path):
    paths = " ".join(map(str, folds))
    out = prints(f"suspects {paths} --top 30")
    lines = out.splitlines()
    assert lines[0] == "most suspect in 3 runs"
    assert lines[1].split() == ["sample", "of", "runs", "visits", "score"]
    assert all(line.split()[2:4] == ["2", "24"] for line in lines[2:])
    suspects = prints_json(f"suspects {paths} --top 30")["suspects"]
    assert {FOLDS[one["run"]][one["id"]] for one in suspects} == set(range(0, SAMPLES, 4))
    out = prints(f"suspects {paths} --top 30 -o {tmp_path / 'wrong.csv'} --to verdicts")
    assert out.splitlines()[-1] == f"30 samples -> {tmp_path / 'wrong.csv'}"
    for rows in (range(SAMPLES), FOLDS[1], range(100, 0, -1)):
        run = Pruner(epochs=4, keys=rows, without=tmp_path / "wrong.csv")
        assert run.without.tolist() == [row % 4 == 0 and row < SAMPLES for row in rows]
    with pytest.raises(PrunedataError, match="Expected a run with keys, as verdicts in"):
        Pruner(SAMPLES, epochs=4, without=tmp_path / "wrong.csv")


def test_what_folds_cannot_be_is_refused(refuses, folds, tmp_path):
    paths = " ".join(map(str, folds))
    (tmp_path / "link.zarr").symlink_to(folds[1])
    for more, told in (
        (f"--labels {tmp_path / 'labels.npy'}", "Expected --labels with the store of one run"),
        (f"-o {tmp_path / 'ids.txt'}", "Expected --to verdicts, csv, jsonl or parquet"),
        (f"-o {tmp_path / 'file'} --to cleanlab", "Expected one run for --to cleanlab"),
        (f"{tmp_path}/x/../{folds[0].name}", "Got one of them twice"),
        (f"{tmp_path / 'link.zarr'}", "Got one of them twice"),
    ):
        assert told in refuses(f"suspects {paths} {more}")


def test_two_splits_are_compared_on_the_rows_that_both_have(prints_json, refuses, folds, tmp_path):
    found = prints_json(f"compare {folds[0]} {folds[1]} --top 20")
    assert (found["samples"], found["compared"], found["jaccard"]) == (40, 40, pytest.approx(1, abs=0.35))
    other = watch(tmp_path / "other.zarr", samples=40, keys=range(500, 540))
    assert "Expected rows that are in both runs, by their keys" in refuses(f"compare {folds[0]} {other}")


def test_verdicts_of_one_run(prints, folds, tmp_path):
    prints(f"suspects {folds[0]} --top 20 -o {tmp_path / 'wrong.csv'} --to verdicts")
    lines = (tmp_path / "wrong.csv").read_text().splitlines()
    assert lines[0] == "sample,verdict,was,label,key"
    assert lines[1].startswith("2,wrong,,,")
    run = Pruner(epochs=4, keys=FOLDS[0][::-1], without=tmp_path / "wrong.csv")
    assert run.without.tolist() == [row % 4 == 0 for row in FOLDS[0][::-1]]
