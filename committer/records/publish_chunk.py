"""What a driver and the workers that publish for it tell one another: a chunk of a decided plan, and what came of it.

Both are small messages that can be pickled, and hold no secret. Neither is ever stored.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final, Literal, Protocol, TypeAlias, cast

import msgspec

from committer.errors import ConfigurationError, RecordError
from committer.readable import UNDECODABLE
from committer.records.job_state import Fact
from committer.records.pending_uploads import UploadEntry
from committer.records.statistics import IOStatistics
from committer.spec import JobSpec

VERSION: Final = 1

Problem: TypeAlias = Literal["", "over", "refused", "unknown", "failed"]

_LONGEST_MESSAGE: Final = 500
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class ChunkFile(msgspec.Struct, gc=False, array_like=True, omit_defaults=True):
    """One file of a chunk: as `PlannedFile` tells it."""

    source: _Name
    destination: _Name
    size: int
    identity: str | None = None
    version: str | None = None
    upload: UploadEntry | None = None
    stamp: str = ""


class ChunkFiles(msgspec.Struct, gc=False, array_like=True):
    """The files of a chunk, and what the decision says stood at their destinations."""

    files: list[ChunkFile]
    targets: list[Fact]


class PublishChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what a job has decided to publish, for `publish_chunk` in any process.

    Picklable, without secrets, at most about a megabyte. It may be carried out more than once, by several workers at a
    time, and late: see docs/decisions/0014-publishing-elsewhere.md.

    Attributes:
        number: Which chunk of the job commit it is, from 0.
        spec: The job, with the choices that it was decided with.
        driver: The driver that decided. A worker that finds another decision, or an outcome, does nothing.
        files: How many files are to be published.
        size: Their bytes.
        entries: The files, encoded.
        digest: SHA-256 of `entries`, in hex: the account names it.
        forward_only: Whether the job as a whole cannot be taken back.
        sealed: Whether the decision says that the job is sealed; its driver has sealed it by now.
        rate: Store calls a second that are this chunk's share; None without a limit.
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

    def decoded(self) -> ChunkFiles:
        """Its files, compared with the digest and the counts.

        Raises:
            RecordError: The chunk was damaged on its way, or another release made it.
        """
        try:
            if self.version != VERSION:
                raise RecordError(f"version {self.version} of a chunk is unknown to this release", field="version")
            if digest_of_entries(self.entries) != self.digest:
                raise RecordError("the files of a chunk are not those that its digest names", field="digest")
            found = msgspec.msgpack.decode(self.entries, type=ChunkFiles)
            if (len(found.files), sum([file.size for file in found.files])) != (self.files, self.size):
                raise RecordError("a chunk names other files than it counts", field="files")
        except UNDECODABLE as error:
            raise _not_a_chunk(RecordError(f"the files of a chunk cannot be read: {error}", field="entries")) from error
        except RecordError as error:
            raise _not_a_chunk(error) from None
        return found


class PublishAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a chunk. Picklable, a few kilobytes.

    Attributes:
        number: Of the chunk.
        driver: Of the chunk.
        digest: Of the chunk.
        files: Files that are in place; all of the chunk's, or 0 where there is a problem.
        size: Their bytes.
        recovered: Those of them that were found in place although no call said so.
        problem: Empty where all is well. ``over``: the decision is gone, or the job ended, so nothing was begun;
            ``refused``: something stands in a file's way; ``unknown``: it cannot be told what happened to a file;
            ``failed``: a store call failed. The driver then looks at each file of the chunk itself.
        message: What the problem is.
        statistics: What was counted and measured.
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
        """The account of a chunk that is not published."""
        message = f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE]
        return cls(number=chunk.number, driver=chunk.driver, digest=chunk.digest, problem=problem, message=message)

    def is_of(self, chunk: PublishChunk) -> bool:
        """Whether it says of this very chunk that every file of it is in place."""
        named = (self.number, self.driver, self.digest) == (chunk.number, chunk.driver, chunk.digest)
        return named and not self.problem and (self.files, self.size) == (chunk.files, chunk.size)


class PublishPool(Protocol):
    """Workers that publish chunks of a decided job for its driver: processes, executors, other machines."""

    def workers(self) -> int:
        """How many chunks may be under way now; asked before each. The job's rate is shared out among as many."""
        ...

    async def publish(self, chunk: PublishChunk) -> PublishAccount:
        """Has a worker call `publish_chunk`, and returns the account; whatever it raises, the driver publishes the
        chunk itself.

        It may send a chunk again, to another worker, as often as it likes: also where it cannot tell whether the first
        one is at work.
        """
        ...


def checked_pool(pool: object) -> PublishPool | None:
    """Returns what a caller gave to publish with when it is a pool, or None.

    Raises:
        ConfigurationError: It is something else: to be seen before the job is decided, for the commit would stop after.
    """
    if pool is None or (callable(getattr(pool, "workers", None)) and callable(getattr(pool, "publish", None))):
        return cast("PublishPool | None", pool)
    raise ConfigurationError(
        f"publish_with is a pool of workers, not a {type(pool).__name__}",
        operation="commit_job",
        next_step="give a committer.sync.ExecutorPool, or an object with the two methods of "
        "committer.api.publishing.PublishPool; or leave it out",
    )


def digest_of_entries(entries: bytes) -> str:
    """What `PublishChunk.digest` is."""
    return hashlib.sha256(entries).hexdigest()


def _not_a_chunk(error: RecordError) -> RecordError:
    error.operation = "publish_chunk"
    error.next_step = "use one release of this library in the driver and in its workers"
    return error
