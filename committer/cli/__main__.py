"""``python -m committer.cli``."""

from __future__ import annotations

import sys

from committer.cli import main

if __name__ == "__main__":
    sys.exit(main())
