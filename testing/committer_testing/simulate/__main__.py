"""``python -m committer_testing.simulate``."""

from __future__ import annotations

import sys

from committer_testing.simulate.command import main

if __name__ == "__main__":
    sys.exit(main())
