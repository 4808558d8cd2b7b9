"""Which release of transformers the tests run with."""

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def _release():
    """Which release it is: test_oldest.py runs these tests with another one."""
    import transformers

    assert transformers.__version__ == os.environ.get("PRUNEDATA_OLDEST", transformers.__version__)
