"""Files to publish, and messages between a driver and its publishing workers: a chunk of them, and its account.

The messages are small, picklable, hold no secret, and are never stored.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias, cast

import msgspec

from committer.errors import ConfigurationError, RecordError
from committer.readable import UNDECODABLE
from committer.records.job_state import Fact
from committer.records.pending_uploads import UploadEntry
from committer.records.statistics import IOStatistics
from committer.records.task_commit import digest_of
from committer.spec import JobSpec

VERSION: Final = 1

Problem: TypeAlias = Literal["", "over", "refused", "unknown", "failed"]

_LONGEST_MESSAGE: Final = 500


class PlannedFile(msgspec.Struct, gc=False, array_like=True, omit_defaults=True):
    """File to publish, with names that were checked to stay inside.

    Attributes:
        source: Relative to the job's `tasks` directory; nothing exists there if the file waits in an upload.
        destination: Relative to the destination; an absolute path below a root.
        identity: Proves that a file is this one; None if the store has none, or before it is looked up.
        stamp: For an upload, proves it together with the length; empty if Hadoop sent it, then `identity` does.
        version: The version for the store's preconditions (`FileStatus.version`), if any.
        stood: What existed at its destination according to the decision.
    """

    source: str
    destination: str
    size: int
    identity: str | None
    upload: UploadEntry | None = None
    stamp: str = ""
    version: str | None = None
    stood: Fact | None = None


class PublishChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a decided job's files to publish, for `publish_chunk` in any process.

    Picklable, without secrets, at most about a megabyte. It may be executed more than once, by several workers at
    a time, and late: see docs/decisions/0014-publishing-elsewhere.md.

    Attributes:
        number: The chunk's number in the job commit, from 0.
        spec: The job, with the options that it was decided with.
        driver: The driver that decided. A worker that finds another decision, or an outcome, does nothing.
        entries: The files, encoded.
        digest: SHA-256 of `entries`, in hex; the account repeats it.
        forward_only: True if the job as a whole cannot be rolled back.
        sealed: True if the decision says that the job is sealed; its driver has sealed it before sending the chunk.
        rate: This chunk's share of store calls per second; None without a limit.
    """

    version: int = VERSION
    number: int
    spec: JobSpec
    driver: str
    files: int
    size: int
    entries: bytes
    digest: str
    forward_only: bool = False
    sealed: bool = False
    rate: float | None = None

    def decoded(self) -> list[PlannedFile]:
        """Decodes the files; raises RecordError if digest or counts differ: damaged in transit, or of
        another release.
        """
        try:
            if self.version != VERSION:
                raise RecordError(f"version {self.version} of a chunk is unknown to this release", field="version")
            if digest_of(self.entries) != self.digest:
                raise RecordError("the files of a chunk are not those that its digest names", field="digest")
            found = msgspec.msgpack.decode(self.entries, type=list[PlannedFile])
            if (len(found), sum([file.size for file in found])) != (self.files, self.size):
                raise RecordError("a chunk names other files than it counts", field="files")
        except UNDECODABLE as error:
            raise _not_a_chunk(RecordError(f"the files of a chunk cannot be read: {error}", field="entries")) from error
        except RecordError as error:
            raise _not_a_chunk(error) from None
        return found


class PublishAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Account of a chunk's publication. Picklable, a few kilobytes.

    Attributes:
        files: Files in place: all of the chunk's, or 0 if there is a problem.
        recovered: Those of them that were in place although no response confirmed it.
        problem: Empty on success. ``over``: the decision is gone or the job ended, so nothing was begun;
            ``refused``: something exists at a file's destination; ``unknown``: the outcome for a file is unknown;
            ``failed``: a store call failed. The driver then checks each file of the chunk itself.
    """

    number: int
    driver: str
    digest: str
    files: int = 0
    size: int = 0
    recovered: int = 0
    problem: Problem = ""
    message: str = ""
    statistics: IOStatistics = msgspec.field(default_factory=IOStatistics)

    @classmethod
    def of_problem(cls, chunk: PublishChunk, problem: Problem, error: BaseException) -> PublishAccount:
        """Makes the account of a chunk that is not published."""
        message = f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE]
        return cls(number=chunk.number, driver=chunk.driver, digest=chunk.digest, problem=problem, message=message)

    def is_of(self, chunk: PublishChunk) -> bool:
        """Reports whether the account says that every file of this chunk is in place."""
        named = (self.number, self.driver, self.digest) == (chunk.number, chunk.driver, chunk.digest)
        return named and not self.problem and (self.files, self.size) == (chunk.files, chunk.size)


class PublishPool(Protocol):
    """Workers that publish chunks of a decided job for its driver: processes, executors, other machines."""

    def workers(self) -> int:
        """Number of chunks that may run now; asked before each. They share the job's call rate equally."""
        ...

    async def publish(self, chunk: PublishChunk) -> PublishAccount:
        """Calls `publish_chunk` in a worker and returns the account; on any error the driver publishes the chunk
        itself.

        May send a chunk again, to another worker and repeatedly, even if it does not know whether the first is at
        work.
        """
        ...


def checked_pool(pool: object) -> PublishPool | None:
    """Checks that `pool` is a pool or None, before the job is decided: later the commit would stop after
    its decision.
    """
    if pool is None or (callable(getattr(pool, "workers", None)) and callable(getattr(pool, "publish", None))):
        return cast("PublishPool | None", pool)
    raise ConfigurationError(
        f"publish_with is a pool of workers, not a {type(pool).__name__}",
        operation="commit_job",
        next_step="give a committer.sync.ExecutorPool, or an object with the two methods of "
        "committer.api.publishing.PublishPool; or leave it out",
    )


def _not_a_chunk(error: RecordError) -> RecordError:
    error.operation = "publish_chunk"
    error.next_step = "use one release of this library in the driver and in its workers"
    return error
