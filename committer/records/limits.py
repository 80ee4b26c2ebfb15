"""Maximum length of each kind of record in bytes: a few times the largest that a job can have.

`CommitterConfig.record_size_limit` sets the limit of task records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LIMITS: Final[Mapping[str, int]] = {
    # A hundred thousand roots and superseded directories.
    "committer.setup": 16 << 20,
    # A million winners: of 200 bytes in an intent, of 400 in a decision.
    "committer.opened": 1 << 16,
    "committer.intent": 256 << 20,
    "committer.decision": 512 << 20,
    "committer.outcome": 1 << 20,
    # 20,000 names of directories, of a kibibyte.
    "committer.entry": 64 << 20,
    # 25,000 facts with names of a kibibyte.
    "facts": 128 << 20,
    # A list of the uploads that one task attempt began at once.
    "committer.api.uploads": 64 << 20,
    # 10,000 parts of one upload.
    "pending": 4 << 20,
    # `_SUCCESS` and reports: a hundred names, counters and diagnostics.
    "success": 16 << 20,
    # 100,000 URIs with percent escapes.
    "file list": 512 << 20,
}
