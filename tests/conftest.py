"""Settings that every test shares."""

import os
import shlex

import pytest
from hypothesis import settings

from prunedata.cli.main import main

# No deadlines: a shared machine is slow at times, and a test never judges wall time.
# No test asks the Hugging Face Hub; read when its packages are imported.
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
settings.register_profile("dev", deadline=None, max_examples=100)
# The same examples on every run, so that a red build means that the change is to blame.
settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture
def say(capsys):
    """Run the program in this process: (exit status, standard output, standard error)."""

    def call(command):
        status = main(shlex.split(command))
        return status, *capsys.readouterr()

    return call
