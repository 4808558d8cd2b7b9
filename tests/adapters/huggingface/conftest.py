"""Before anything of Hugging Face's is imported."""

import os

import pytest

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


@pytest.fixture(autouse=True, scope="session")
def _release():
    """Which release it is: test_oldest.py runs these tests with another one."""
    import transformers

    assert transformers.__version__ == os.environ.get("PRUNEDATA_OLDEST", transformers.__version__)
