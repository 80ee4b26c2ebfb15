"""The exception tree. Every error tells what failed, on what, whether anything changed, and what to do next.

```text
CommitterError
+- ConfigurationError (also a ValueError)   an option, a name or an argument that cannot be honoured
|   +- InvalidPathError                     a URI or a file name that no store could hold, or that escapes
|   +- UnsupportedError                     this committer or this store cannot do what was asked
+- RecordError                              a record read from a store is damaged or not valid
+- JobError
|   +- JobExistsError                       the job id is in use at this destination
|   +- JobNotFoundError                     there is no such job, or its directory was removed meanwhile
|   +- JobStateError                        the call does not fit the state of the job
|   |   +- JobDecidedError                  the job is decided the other way: committed, or aborted
|   |   +- JobUndecidedError                no driver began to commit the job: nothing to recover
|   |   +- JobRolledBackError               the job's commit was rolled back
|   |   +- OutcomeKeptError                 the job committed, and its outcome is kept on purpose
|   +- TaskCommitsRequiredError             the winners must be named by message
|   +- TaskMissingError                     fewer (or other) tasks committed than the job has
|   +- DestinationBusyError                 another job with a meeting scope is committing
|   +- PreflightError                       the output as committed by tasks cannot be published
|   |   +- TargetExistsError                an entry exists at the path of a file
|   +- ValidationError                      the destination differs from what was published
|   +- OutcomeUnknownError                  looking at the store cannot tell what happened
+- TaskError                                a task attempt was used against its rules
+- MultipleError                            several workers failed: `causes` holds each
+- StoreError
   +- StoreNotFoundError                   nothing exists at the path
   +- DestinationNotFoundError             the bucket, the container or the destination itself does not exist
   +- StoreExistsError                     the path exists already
   +- StoreNotADirectoryError              a file exists where a directory must be
   +- StoreIsADirectoryError               a directory exists where a file must be
   +- StoreLinkError                       a link exists where a job has its directories and records
   +- StoreNotEmptyError                   a directory still has children
   +- StorePreconditionError               the file is not the one the caller meant
   +- StoreConflictError                   another change of the same name was under way at that moment
   +- StoreUploadNotFoundError             no such upload is pending: it was completed, or aborted
   +- StorePartsError                      the file cannot be made of the parts or blocks that were named
   +- StorePermissionError                 the store refused the credentials, or the right is missing
   +- StoreCrossDeviceError                a rename would leave its volume
   +- StoreThrottledError                  the store asked to slow down; nothing was done
   +- StoreUnavailableError                the store did not take the request; nothing was done
   +- StoreOutcomeUnknownError             the response to a request was lost: it may have been done
```
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, TypedDict, Unpack

Outcome: TypeAlias = Literal["unchanged", "partial", "committed", "unknown"]

_WORST_FIRST: tuple[Outcome, ...] = ("unknown", "partial", "committed", "unchanged")


class _Told(TypedDict, total=False):
    """Arguments of every error beside its message and operation; see `CommitterError`."""

    path: object
    outcome: Outcome | None
    next_step: str
    causes: Iterable[BaseException]


class CommitterError(Exception):
    """Base of every error this library raises on purpose.

    Attributes:
        message: What failed, in one sentence.
        operation: The operation that failed, for example ``commit_job`` or ``rename_file``; empty if none ran.
        path: The URI or name it failed on; empty if there is none.
        outcome: Whether anything visible changed: ``unchanged``, ``partial``, ``committed`` or ``unknown``.
        next_step: What the user can do now; empty when the message says it all.
        causes: The separate failures behind this one, if there were several.
    """

    default_outcome: Outcome = "unchanged"

    def __init__(
        self,
        message: str,
        *,
        operation: str = "",
        path: object = "",
        outcome: Outcome | None = None,
        next_step: str = "",
        causes: Iterable[BaseException] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.operation = operation
        self.path: str = str(path)
        self.outcome: Outcome = outcome or self.default_outcome
        self.next_step = next_step
        self.causes: tuple[BaseException, ...] = tuple(causes)

    def __str__(self) -> str:
        parts = [self.message]
        if self.path and self.path not in self.message:
            parts.append(f"path: {self.path}")
        if self.operation:
            parts.append(f"operation: {self.operation}")
        parts.append(f"outcome: {self.outcome}")
        if self.next_step:
            parts.append(f"next step: {self.next_step}")
        return "; ".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark, multiprocessing); keyword-only arguments need help to be pickled.
        # The interpreter pickles notes.
        state = {name: value for name, value in vars(self).items() if name != "__notes__"}
        return _rebuild, (type(self), self.message, state)


def _rebuild(kind: type[CommitterError], message: str, state: dict[str, object]) -> CommitterError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class ConfigurationError(CommitterError, ValueError):
    """An option, a name or an argument that cannot be honoured."""


class InvalidPathError(ConfigurationError):
    """A URI or file name that no store could hold, or that would escape the destination."""


class UnsupportedError(ConfigurationError):
    """The committer or the store cannot do what was asked."""


class RecordError(CommitterError):
    """A record read from a store is damaged or not valid.

    Attributes:
        field: The wrong member of the record; empty for the record as a whole.
    """

    def __init__(self, message: str, *, field: str = "", operation: str = "load_record", **told: Unpack[_Told]) -> None:
        super().__init__(message, operation=operation, **told)
        self.field = field


class JobError(CommitterError):
    """A job could not do what was asked of it."""


class JobExistsError(JobError):
    """The job id is in use at this destination.

    Attributes:
        state: State of that job: ``open``, ``committing`` (decided, not ended), ``committed`` (its last steps
            are missing, or it keeps its outcome), ``rolled-back`` or ``aborted`` (its remains are not removed).
    """

    def __init__(self, message: str, *, state: str = "open", operation: str = "", **told: Unpack[_Told]) -> None:
        super().__init__(message, operation=operation, **told)
        self.state = state


class JobNotFoundError(JobError):
    """There is no such job at this destination, or its directory was removed meanwhile."""


class JobStateError(JobError):
    """The call does not fit the state of the job."""


class JobDecidedError(JobStateError):
    """The job is decided the other way: to be committed, so it cannot be aborted, or the contrary."""


class JobUndecidedError(JobStateError):
    """No driver began to commit the job; `delivery` (``listing`` or ``message``) determines how a driver can."""

    def __init__(self, message: str, *, delivery: str = "listing", operation: str = "", **told: Unpack[_Told]) -> None:
        super().__init__(message, operation=operation, **told)
        self.delivery = delivery


class JobRolledBackError(JobStateError):
    """The job's commit was rolled back: none of its files is at the destination."""


class OutcomeKeptError(JobStateError):
    """The job committed, and its outcome is kept, so that a stream that repeats it finds it committed."""


class TaskCommitsRequiredError(JobError):
    """Attempts committed that this Job did not see: the winners must be named by message."""


class TaskMissingError(JobError):
    """Fewer tasks committed than the job has, or other ones."""


class DestinationBusyError(JobError):
    """Other jobs replace data where this job commits, or commit where this job replaces data.

    Attributes:
        owners: The ids of these jobs. Each has to end before this job can commit.
    """

    def __init__(self, message: str, *, owners: Iterable[str] = (), operation: str = "", **told: Unpack[_Told]) -> None:
        super().__init__(message, operation=operation, **told)
        self.owners: tuple[str, ...] = tuple(owners)

    @property
    def owner(self) -> str:
        """The first of `owners`; empty if none is known."""
        return self.owners[0] if self.owners else ""


class PreflightError(JobError):
    """The output as committed by the tasks cannot be published; nothing was.

    Attributes:
        conflicts: One sentence each, at most a hundred.
    """

    def __init__(
        self, message: str, *, conflicts: Iterable[str] = (), operation: str = "preflight", **told: Unpack[_Told]
    ) -> None:
        super().__init__(message, operation=operation, **told)
        self.conflicts: tuple[str, ...] = tuple(conflicts)


class TargetExistsError(PreflightError):
    """A file or directory exists at the path of a file, and the job may not replace it."""


class ValidationError(JobError):
    """The destination differs from what was published."""

    default_outcome: Outcome = "partial"


class OutcomeUnknownError(JobError):
    """Looking at the store cannot tell what happened; nothing was aborted or deleted."""

    default_outcome: Outcome = "unknown"


class TaskError(CommitterError):
    """A task attempt was used against its rules: a name opened twice, a write after commit, a vanished job."""


class MultipleError(CommitterError):
    """Several workers failed at once; `causes` holds each failure, the first one first."""

    @classmethod
    def of(cls, operation: str, causes: Iterable[BaseException]) -> MultipleError:
        """Joins failures, nested ones too, into one error with the worst outcome among them."""
        groups = [cause.causes if isinstance(cause, MultipleError) else (cause,) for cause in causes]
        causes = tuple(cause for group in groups for cause in group)
        outcomes = [cause.outcome if isinstance(cause, CommitterError) else "unknown" for cause in causes]
        worst = next(outcome for outcome in _WORST_FIRST if outcome in outcomes)
        steps = [cause.next_step for cause in causes if isinstance(cause, CommitterError) and cause.next_step]
        return cls(
            f"{len(causes)} operations failed, the first: {_headline(causes[0])}",
            operation=operation,
            path=getattr(causes[0], "path", ""),
            outcome=worst,
            next_step=steps[0] if steps else "",
            causes=causes,
        )


def _headline(error: BaseException) -> str:
    return error.message if isinstance(error, CommitterError) else f"{type(error).__name__}: {error}"


class StoreError(CommitterError):
    """A store call failed. Its subclass tells whether the call can have had an effect."""


class StoreNotFoundError(StoreError):
    """Nothing exists at the path, or its parent is missing."""


class DestinationNotFoundError(StoreError):
    """The bucket, the container or the destination does not exist: no `StoreNotFoundError`, since it may be
    mistyped.
    """


class StoreExistsError(StoreError):
    """The path exists already."""


class StoreNotADirectoryError(StoreError):
    """A file exists where a directory must be, at the path or at one of its parents."""


class StoreIsADirectoryError(StoreError):
    """A directory exists where a file must be."""


class StoreLinkError(StoreError):
    """A symbolic link exists where a job has its directories and records, and was not followed.

    This engine creates none there: another user did, or a task. Look at link and target, and remove the link by hand.
    """

    @classmethod
    def at(cls, path: object, *, operation: str = "") -> StoreLinkError:
        """Builds the error for a link at `path`."""
        return cls(
            f"{path} is a link, where a job has its own directories and records: it was not followed",
            operation=operation,
            path=path,
            next_step="look at what it leads to, remove the link by hand, and find out who put it there",
        )


class StoreNotEmptyError(StoreError):
    """The directory still has children."""


class StorePreconditionError(StoreError):
    """The file at the path is not the one the caller meant; nothing was done."""


class StoreConflictError(StoreError):
    """Another change of the same name was under way, so the store could not judge the condition; nothing was done.

    Not `StoreExistsError`: the store did not report that anything exists. After S3's 409
    ``ConditionalRequestConflict`` to an exclusive completion the upload may be gone: S3 asks to begin it anew.
    """


class StoreUploadNotFoundError(StoreError):
    """No such upload is pending; the call itself did nothing.

    The upload was completed (by an earlier request whose response was lost, or by another driver), or aborted (by
    another process or a lifecycle rule). S3's ``NoSuchUpload`` does not tell which; stamp and length of the file do.
    """


class StorePartsError(StoreError):
    """The file cannot be made of the parts or blocks that were named; nothing was done, pending ones still are.

    A part is missing, has another etag, is in the wrong order or too short, or there are none or too many (S3:
    ``InvalidPart``, ``InvalidPartOrder``, ``EntityTooSmall``; Azure: ``InvalidBlockList``). Blocks are gone
    once a file was made of them, so for a block list an earlier request may have succeeded.
    """


class StorePermissionError(StoreError):
    """The store refused the credentials, or they lack a right; nothing was done."""


class StoreCrossDeviceError(StoreError):
    """A rename would leave its volume; nothing was done. The engine never copies instead.

    Also if a deleted directory contains a mount point: then what is mounted, at `path`, was not changed.
    """


class StoreThrottledError(StoreError):
    """The store asked to slow down; nothing was done.

    Attributes:
        retry_after_s: Seconds that the store asked to wait, if it did.
        one_name: Whether only one name, which changes too often, is throttled, not the endpoint.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        one_name: bool = False,
        operation: str = "",
        **told: Unpack[_Told],
    ) -> None:
        super().__init__(message, operation=operation, **told)
        self.retry_after_s = retry_after_s
        self.one_name = one_name


class StoreUnavailableError(StoreError):
    """The store did not take the request; nothing was done, and it may be sent again.

    `expected_back` is true if a server announced that it, or another in its place, will serve again.
    """

    expected_back: bool = False


class StoreOutcomeUnknownError(StoreError):
    """The response to a request was lost: it may have been done. Look before doing it again."""

    default_outcome: Outcome = "unknown"
