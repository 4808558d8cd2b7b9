"""Settings that every test shares."""

import os

from hypothesis import settings

# No deadlines: a shared machine is slow at times, and a test never judges wall time.
settings.register_profile("dev", deadline=None, max_examples=100)
# The same examples on every run, so that a red build means that the change is to blame.
settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
