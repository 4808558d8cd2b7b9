"""The oldest release of transformers that is promised: the same tests, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OLDEST = ROOT / ".venv" / "oldest"
CHOSEN = ("test_trainer.py", "test_losses.py", "test_sft.py", "test_stock.py", "test_passes.py")
LEFT_OUT = " and ".join(
    f"not {what}" for what in ("workers", "refused", "ones_own", "goes_on_within", "two_processes", "accumulation_find")
)
"""What costs time and says no more; and what trains otherwise there: the old release divides an accumulated loss twice,
pruned or not."""
pytestmark = pytest.mark.slow


@pytest.mark.skipif("PRUNEDATA_OLDEST" in os.environ, reason="this is the process that it starts")
def test_the_same_tests_with_the_oldest_release():
    if not OLDEST.is_dir():
        assert "CI" not in os.environ, "make test installs it"
        pytest.skip("no .venv/oldest: make test installs it")
    chosen = [str(ROOT / "tests" / "adapters" / "huggingface" / name) for name in CHOSEN]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", LEFT_OUT, *chosen]
    environment = os.environ | {"PYTHONPATH": f"{OLDEST}{os.pathsep}{ROOT}", "PRUNEDATA_OLDEST": "5.3.0"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    assert "skipped" not in ended.stdout
