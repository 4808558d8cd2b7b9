"""Commands that run in this process: what they print, and why they fail."""

import json

import pytest


@pytest.fixture
def prints(say):
    """``prints(command)`` is what a command prints, which succeeds and says nothing else."""

    def call(command):
        status, out, err = say(command)
        assert (status, err) == (0, "")
        return out

    return call


@pytest.fixture
def prints_json(prints):
    """``prints_json(command)`` is what a command prints with ``--json``."""
    return lambda command: json.loads(prints(f"{command} --json"))


@pytest.fixture
def refuses(say):
    """``refuses(command)`` is the one line with which a command fails, which prints nothing else."""

    def call(command):
        status, out, err = say(command)
        assert (status, out) == (2, "")
        assert err.startswith("prunedata: error: ")
        assert err.count("\n") == 1
        return err

    return call
