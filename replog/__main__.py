"""`python -m replog`: the same as the `replog` command."""

from __future__ import annotations

import sys

from replog.cli import main

if __name__ == "__main__":
    sys.exit(main())
