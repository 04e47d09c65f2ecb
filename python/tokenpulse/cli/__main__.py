"""`python -m tokenpulse.cli` is the `tokenpulse` command."""

import sys

from tokenpulse.cli import main

if __name__ == "__main__":
    sys.exit(main())
