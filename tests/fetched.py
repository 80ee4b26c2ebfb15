"""Where tests keep the programs of others that they fetch: once for a user, so that a new clone has them at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FETCHED: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "lake-committer", "tests")
