"""This engine's own records of one job: setup, opened, intent, decision, outcome and entry.

They are JSON, each with ``type`` and ``version``, each written once and read by every driver of the job. What they
mean to MapReduce's ``COMMIT_STARTED`` / ``COMMIT_SUCCESS`` / ``COMMIT_FAIL`` markers: a commit decision is STARTED,
made by exactly one driver; outcome ``committed`` is SUCCESS, ``rolled-back`` is FAIL, and only who made the decision
stand or reads it may write either.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from committer.driver_process import DriverProcess
from committer.errors import RecordError
from committer.options.config import CommitterConfig
from committer.readable import UNDECODABLE
from committer.records.limits import LIMITS
from committer.records.statistics import IOStatistics
from committer.spec import JobSpec

VERSION: Final = 1


class Winner(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One task's record, immutable once named here.

    Attributes:
        record: Where it is, relative to the job's directory.
        digest: SHA-256 of its bytes, in hex.
        length: Its length in bytes.
        files: File entries in it.
        size: Bytes of data those entries name.
        task: The task's id as in the record.
        task_attempt: The task attempt's id as in the record.
        offset: Where it begins in a side file that holds copies of several records.
    """

    record: str
    digest: str
    length: int
    files: int
    size: int
    task: str
    task_attempt: str
    offset: int = 0


class NamedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record by its place (relative to the job's directory) and the SHA-256 of its bytes."""

    record: str
    digest: str


PlanKind: TypeAlias = Literal["", "superseded", "identity", "target"]


class PlanFile(msgspec.Struct, frozen=True):
    """A side file of the decision: `lines` facts, one JSON object a line.

    Attributes:
        name: In the job's directory.
        digest: SHA-256 of its bytes, in hex.
        lines: Facts in it.
        kind: Of them all, if they are to be read one file after the other: ``superseded``, or ``identity`` or
            ``target`` in the order of the files of the winners' records. Empty where they are of several kinds, or in
            another order.
    """

    name: str
    digest: str
    lines: int
    kind: PlanKind = ""


class JobSetup(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.setup"):
    """The job as it was set up. While it exists and `JobOpened` says open, the job is live.

    Attributes:
        owner: Random name of the driver that set it up.
        process: That driver's process.
    """

    version: int = VERSION
    spec: JobSpec
    created: str
    owner: str
    process: DriverProcess | None = None


class JobOpened(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.opened"):
    """Whether the job was ever opened, created once.

    Attributes:
        state: ``open``, by the driver that set the job up once no other job of its id was live; ``closed``, by a setup
            of the same id or a cleanup that found the job not opened: it never is one then.
        driver: Random name of the driver that created the record.
    """

    version: int = VERSION
    state: Literal["open", "closed"]
    driver: str
    created: str


class Intent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.intent"):
    """A driver began to commit the job. Written before anything of the commit is done.

    Attributes:
        winners: Records and digests that messages named; None when every record listed wins.
        tasks: How many tasks must have committed; None when unknown.
        process: The driver's process.
    """

    version: int = VERSION
    job_id: str
    driver: str
    created: str
    winners: list[NamedRecord] | None = None
    tasks: int | None = None
    process: DriverProcess | None = None


class Fact(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Something the decision rests on that no task record holds: a line of a side file, or in the decision itself.

    Attributes:
        kind: ``identity`` (of a source, looked up), ``target`` (stood at a file's destination), ``blocking`` (a file
            stood where a directory goes), ``superseded`` (an old file that is taken away), ``directory`` (was absent).
        path: Relative to the destination; for ``identity`` relative to the job attempt's directory.
        identity: The file's identity; None where the store has none, or for a directory.
        size: The file's length.
        is_directory: Whether a directory stood there.
        aside: Number of its place in the superseded directory; -1 when it never goes there.
    """

    kind: Literal["identity", "target", "blocking", "superseded", "directory"]
    path: str
    identity: str | None = None
    size: int = 0
    is_directory: bool = False
    aside: int = -1


class Decision(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.decision"):
    """The job's fate, decided once.

    Attributes:
        decision: ``commit`` or ``abort``.
        driver: Random name of the driver that decided.
        config: The choices the job is finished with, by every driver that finishes it.
        winners: The records that are published, in this order.
        files: File entries over all winners.
        size: Bytes over all winners.
        directories: Directories that were absent and are made.
        facts: What the records do not hold, where that is little.
        plan: Side files with what the records do not hold, where that is much.
        success_identity: Identity of the `_SUCCESS` that stood at the destination; None when there was none.
        success_present: Whether a `_SUCCESS` stood there.
        replacing: Whether old files are taken away.
        was_empty: Whether the destination held nothing visible.
        hadoop: Whether Hadoop set the job up, so that no setup record stands beside the decision.
        statistics: What the winners' records count, added up: the driver that finishes the job reports it.
        sealed: Whether what task attempts wrote is put out of their reach before anything is published, and is
            published from there (`committer.stages.undo.seal`).
    """

    version: int = VERSION
    job_id: str
    decision: Literal["commit", "abort"]
    driver: str
    created: str
    config: CommitterConfig = msgspec.field(default_factory=CommitterConfig)
    winners: list[Winner] = []
    files: int = 0
    size: int = 0
    directories: int = 0
    facts: list[Fact] = []
    plan: list[PlanFile] = []
    success_identity: str | None = None
    success_present: bool = False
    replacing: bool = False
    was_empty: bool = False
    hadoop: bool = False
    statistics: IOStatistics = msgspec.field(default_factory=IOStatistics)
    sealed: bool = False


class DecisionHead(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.decision"):
    """Who decided what: of a decision, which names every record of a job, all that a driver has to see again."""

    version: int = VERSION
    decision: Literal["commit", "abort"]
    driver: str


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.outcome"):
    """How a decided commit ended; never rewritten. A job that keeps its outcome has a copy of it under the name `kept`.

    Attributes:
        outcome: ``committed`` or ``rolled-back``.
        driver: Random name of the driver that ended it.
        tasks: Tasks whose output was published; None where the record does not say.
        files: Files published.
        size: Bytes published.
        reason: Why it was rolled back.
    """

    version: int = VERSION
    job_id: str
    outcome: Literal["committed", "rolled-back"]
    driver: str
    created: str
    tasks: int | None = None
    files: int = 0
    size: int = 0
    reason: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.entry"):
    """The scope of a job, created once by each driver that is about to decide it: other jobs' drivers read it.

    Attributes:
        setup: The setup of its id: `JobSpec.setup`; empty for a job that Hadoop set up.
        driver: Random name of the driver.
        writes: Directories that the job writes files into, relative to the destination or absolute.
        replaces: Subtrees that it replaces.
    """

    version: int = VERSION
    job_id: str
    setup: str = ""
    driver: str
    created: str
    writes: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


Record = JobSetup | JobOpened | Intent | Decision | JobOutcome | Entry
R = TypeVar("R", JobSetup, JobOpened, Intent, Decision, DecisionHead, JobOutcome, Entry)

_FACTS: Final = msgspec.json.Encoder()
_FACT_LINES: Final = msgspec.json.Decoder(Fact)

SETUP: Final = "committer.setup"
"""The key of a setup's name, in records whose form is Hadoop's: the extra data of tasks' records, and `_SUCCESS`."""

BY_PATH: Final = "committer.by-path"
"""The key, in the extra data of a task's record, that says that programs were given the path of the attempt's
directory: that these write no more is known to its caller alone."""


def encode_record(record: Record) -> bytes:
    """Encodes a record as indented JSON.

    Raises:
        RecordError: The record exceeds the limit of its kind.
    """
    data = msgspec.json.format(msgspec.json.encode(record), indent=2)
    limit = limit_of(type(record))
    if len(data) > limit:
        raise RecordError(
            f"a {record.__struct_config__.tag} record would have {len(data)} bytes; the limit is {limit}",
            operation="encode_record",
            next_step="split the work into jobs of fewer tasks, or name fewer directories in the job's config",
        )
    return data


def limit_of(kind: type[msgspec.Struct]) -> int:
    """Returns the longest record of a kind that a job writes or reads, in bytes."""
    return LIMITS[str(kind.__struct_config__.tag)]


def decode_record(data: bytes, kind: type[R], *, source: str) -> R:
    """Reads one record.

    Args:
        data: Its bytes.
        kind: What it must be.
        source: Where it came from, for the error.

    Raises:
        RecordError: It is something else, or of a version this release does not know.
    """
    try:
        record = msgspec.json.decode(data, type=kind)
    except UNDECODABLE as error:
        raise RecordError(
            f"not a {kind.__struct_config__.tag} record: {error}",
            path=source,
            next_step="it was damaged, or another program wrote it: look at the destination; what the job did not "
            "publish is lost when cleanup of that job with force=True removes it",
        ) from error
    if record.version != VERSION:
        raise RecordError(
            f"version {record.version} of a {kind.__struct_config__.tag} record is unknown to this release",
            field="version",
            path=source,
            next_step="use the release that wrote it",
        )
    return record


def encode_facts(facts: list[Fact]) -> bytes:
    """Facts as JSON lines."""
    return _FACTS.encode_lines(facts)


def decode_facts(data: bytes, *, source: str) -> list[Fact]:
    """Reads JSON lines of facts.

    Raises:
        RecordError: A line is something else.
    """
    try:
        return _FACT_LINES.decode_lines(data)
    except UNDECODABLE:
        # To say which.
        return _decode_by_line(data, source)


def _decode_by_line(data: bytes, source: str) -> list[Fact]:
    facts: list[Fact] = []
    try:
        facts.extend(_FACT_LINES.decode(line) for line in data.splitlines())
    except UNDECODABLE as error:
        raise RecordError(f"line {len(facts) + 1} is not a fact: {error}", path=source) from error
    return facts
