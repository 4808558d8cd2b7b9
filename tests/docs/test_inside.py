"""The page on the inside of a run says what is called, in the order in which it is called."""

import re
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from prunedata import Pruner, Schedule
from prunedata.adapters.torch import wrap

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/extend/inside.md").read_text()
STEPS = re.findall(r"<!-- route -->\n```\n(.*?)```", PAGE, re.S)[0].splitlines()
ROUTE = [step.split(maxsplit=2) for step in STEPS]


def called(what):
    """The functions that are called once a batch was observed, by class and name, in the order of their first call."""
    names = {}

    def note(frame, event, _):
        name = frame.f_code.co_qualname
        if event == "call" and (names or name == ROUTE[0][0]):
            names.setdefault(name, Path(frame.f_code.co_filename).resolve())

    sys.setprofile(note)
    try:
        what()
    finally:
        sys.setprofile(None)
    return names


def test_a_loss_goes_the_way_that_the_page_tells():
    pruner = Pruner(64, Schedule(1, 1, 1, 1, 0), prune=0, leave_out="nothing")
    loader = wrap(DataLoader(TensorDataset(torch.arange(64)), batch_size=8), pruner)

    def train():
        for _ in pruner.epochs():
            for (batch,) in loader:
                loader.observe(batch.float())

    names = called(train)
    assert len(ROUTE) <= 6
    assert [name for name in names if name in {name for name, *_ in ROUTE}] == [name for name, *_ in ROUTE]
    for name, place, _ in ROUTE:
        assert names[name] == (ROOT / place).resolve(), name


def test_every_name_on_the_page_is_there():
    source = "\n".join(path.read_text() for path in sorted((ROOT / "prunedata").glob("[!a]*/*.py")))
    for owner, name in set(re.findall(r"`([A-Z]\w+)\.(\w+)`", PAGE)):
        body = re.search(rf"^class {owner}\b.*?(?=^class |\Z)", source, re.S | re.M)
        assert body, owner
        assert re.search(rf"\b{name}\b", body[0]), f"{owner}.{name}"
