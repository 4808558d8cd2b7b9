"""``python -m prunedata`` is the program ``prunedata``."""

import sys

from prunedata.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
