"""One file to publish, and the files of one record: by columns, and as the driver's disk keeps them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from committer.records.job_state import Fact
from committer.records.pending_uploads import UploadEntry


class PlannedFile(msgspec.Struct, gc=False):
    """One file to publish, by names that were proved to stay inside.

    Attributes:
        source: Relative to the job's `tasks` directory.
        destination: Relative to the destination; outside it, below a root of the job, an absolute path.
        size: Bytes.
        identity: What proves it is this file; None where the store has none, or until it is looked up.
        upload: The upload it waits in, where it is no file yet; then nothing stands at `source`.
        stamp: What then proves, with its length, that a file is this one; empty where Hadoop sent it, then its
            identity does.
        version: What the store's conditions knew it by when it was written (`FileStatus.version`); None without.
        stood: What the decision says stood at its destination; None where nothing did.
    """

    source: str
    destination: str
    size: int
    identity: str | None
    upload: UploadEntry | None = None
    stamp: str = ""
    version: str | None = None
    stood: Fact | None = None


class RecordEntries(NamedTuple):
    """The files of one record, by what `PlannedFile` tells of each: a column costs a fraction of as many objects."""

    sources: list[str]
    destinations: list[str]
    sizes: list[int]
    identities: list[str | None]
    uploads: list[UploadEntry | None] | None = None
    stamp: str = ""
    versions: list[str | None] | None = None

    def planned(self) -> list[PlannedFile]:
        """The files one by one."""
        files = list(map(PlannedFile, self.sources, self.destinations, self.sizes, self.identities))
        if self.uploads is not None:
            for file, upload in zip(files, self.uploads, strict=True):
                file.upload, file.stamp = upload, self.stamp
        if self.versions is not None:
            for file, version in zip(files, self.versions, strict=True):
                file.version = version
        return files

    def first(self) -> PlannedFile:
        """The first file, of a record that has any."""
        upload = self.uploads[0] if self.uploads is not None else None
        return PlannedFile(self.sources[0], self.destinations[0], self.sizes[0], self.identities[0], upload, self.stamp)


class KeptEntries(NamedTuple):
    """The files of one record, as the driver's disk keeps them until they are asked for again.

    Attributes:
        digest: The record's, which a decision names.
        entries: What was proved of it.
    """

    digest: str
    entries: RecordEntries

    @classmethod
    def of_files(cls, digest: str, files: list[PlannedFile]) -> KeptEntries:
        """Those of a record whose files were told one by one already."""
        uploads = [file.upload for file in files]
        versions = [file.version for file in files]
        entries = RecordEntries(
            [file.source for file in files],
            [file.destination for file in files],
            [file.size for file in files],
            [file.identity for file in files],
            uploads if any(uploads) else None,
            files[0].stamp if files else "",
            versions if any(versions) else None,
        )
        return cls(digest, entries)
