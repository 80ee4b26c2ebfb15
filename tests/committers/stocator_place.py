"""Memory spaces whose jobs write objects where readers see them, seen by a reader that lists, and by one that does not."""

from __future__ import annotations

import re

from committer.errors import RecordError
from committer.paths import StorePath
from committer.records.success import decode_success
from tests.places import Delivery, MemoryPlace

PROFILES = ("s3", "gcs", "azure-flat")
ATTEMPT = re.compile(r"-attempt_[^/]*?_m_\d+_\d+-[0-9a-f]+")


class StocatorPlace(MemoryPlace):
    """`objects` is what a reader sees who lists, `files` what one reads who goes by `_SUCCESS`, by the tasks' names."""

    asked_for = True
    publishes_by = "none"

    def __init__(self, profile: str = "s3", *, delivery: Delivery = "listing", **flags: bool) -> None:
        super().__init__(profile, delivery=delivery, **flags)
        self.committer, self.listed_record = "stocator", "manifest.json"

    def objects(self) -> dict[str, bytes]:
        """Returns the existing files without `_SUCCESS` and the records of jobs."""
        return super().files()

    def named(self) -> set[str]:
        """What `_SUCCESS` names; nothing where there is none."""
        try:
            marker = decode_success(self.all_files()["_SUCCESS"], source="_SUCCESS")
        except (KeyError, RecordError):
            return set()
        return {StorePath.from_uri(uri).relative_to(StorePath.of(self.dest)) for uri in marker.filenames}

    def files(self) -> dict[str, bytes]:
        """What `_SUCCESS` names, and what no job of this committer wrote; a name that stands for two objects fails."""
        named = self.named()
        found: dict[str, bytes] = {}
        for name, data in self.objects().items():
            if name in named or not ATTEMPT.search(name):
                plain = ATTEMPT.sub("", name)
                assert plain not in found, f"two objects are {plain}"
                found[plain] = data
        return found

    def losers(self) -> set[str]:
        """Objects of this committer's jobs that `_SUCCESS` does not name."""
        return {name for name in self.objects() if ATTEMPT.search(name)} - self.named()
