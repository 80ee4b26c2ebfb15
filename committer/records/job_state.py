"""The engine's own records of one job: setup, opened, intent, decision, outcome and entry.

They are JSON with ``type`` and ``version``, written once and read by every driver of the job; `driver` is a random
name of the driver that wrote the record. In terms of MapReduce's markers, a commit decision is ``COMMIT_STARTED``,
made by exactly one driver; outcome ``committed`` is ``COMMIT_SUCCESS``, ``rolled-back`` is ``COMMIT_FAIL``. Only a
driver that made or read the decision writes an outcome.
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
    """Record of a winning task, immutable once named in a decision.

    Attributes:
        record: Its path, relative to the job's directory.
        digest: SHA-256 of its bytes, in hex.
        size: Bytes of data that its entries name.
        offset: Its position in a side file with copies of several records.
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
    """A record's path (relative to the job's directory) and the SHA-256 of its bytes."""

    record: str
    digest: str


PlanKind: TypeAlias = Literal["", "superseded", "identity", "target"]


class PlanFile(msgspec.Struct, frozen=True):
    """A side file of the decision in the job's directory: `lines` facts, one JSON object per line.

    `kind` is the kind of all facts, if files of this kind may be read in sequence: ``superseded``, or ``identity``
    or ``target`` in the order of the files in the winners' records. One of empty kind has facts of none of the three.
    """

    name: str
    digest: str
    lines: int
    kind: PlanKind = ""


class JobSetup(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.setup"):
    """Setup record, by the driver `owner`. The job is live while this exists and `JobOpened` says open."""

    version: int = VERSION
    spec: JobSpec
    created: str
    owner: str
    process: DriverProcess | None = None


class JobOpened(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.opened"):
    """Whether the job was ever opened; created once.

    Attributes:
        state: ``open``: written by the driver that set the job up, once no other job of its id was live.
            ``closed``: written by another setup of the same id or a cleanup that found the job not opened; it then
            never opens.
    """

    version: int = VERSION
    state: Literal["open", "closed"]
    driver: str
    created: str


class Intent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.intent"):
    """Intent of a driver to commit the job; written before any other step of the commit.

    Attributes:
        winners: Records and digests that messages named; None if every listed record wins.
        tasks: Required number of committed tasks; None if unknown.
        job_attempt: Which attempt of a job that Hadoop set up is committed.
    """

    version: int = VERSION
    job_id: str
    driver: str
    created: str
    winners: list[NamedRecord] | None = None
    tasks: int | None = None
    process: DriverProcess | None = None
    job_attempt: int = 0


class Fact(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A fact that the decision depends on and no task record holds; in a side file or in the decision.

    Attributes:
        kind: ``identity`` (of a source, looked up), ``target`` (existed at a file's destination), ``blocking`` (a
            file in place of a directory), ``superseded`` (an old file to remove), ``directory`` (was absent).
        path: Relative to the destination; for ``identity`` relative to the job attempt's directory.
        identity: The file's identity; None if the store has none, or for a directory.
        aside: Number of its place in the superseded directory; -1 if it is never moved there.
    """

    kind: Literal["identity", "target", "blocking", "superseded", "directory"]
    path: str
    identity: str | None = None
    size: int = 0
    is_directory: bool = False
    aside: int = -1


class Decision(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.decision"):
    """The job's decision, made once.

    Attributes:
        config: The options for every driver that finishes the job.
        winners: The records to publish, in this order.
        directories: Number of absent directories to create.
        facts: Facts that the records do not hold, if few.
        plan: Side files with such facts, if many.
        success_identity: Identity of the `_SUCCESS` at the destination; None if there was none.
        was_empty: True if the destination held nothing visible.
        hadoop: True if Hadoop set the job up, so that there is no setup record.
        job_attempt: Which attempt of such a job is committed.
        statistics: Sum of the winners' statistics, for the report of the driver that finishes the job.
        sealed: True if the output of task attempts is moved out of their reach before it is published from there
            (`committer.stages.publish.promote`).
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
    job_attempt: int = 0
    statistics: IOStatistics = msgspec.field(default_factory=IOStatistics)
    sealed: bool = False


class DecisionHead(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.decision"):
    """The part of a decision that a driver has to read again; without the job's many records."""

    version: int = VERSION
    decision: Literal["commit", "abort"]
    driver: str


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.outcome"):
    """Outcome of a decided commit; never rewritten. A job that keeps its outcome has a copy under the name `kept`.

    Attributes:
        tasks: Number of published tasks; None if not recorded.
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
    """Scope of a job, created once by each driver that is about to decide; other jobs' drivers read it.

    Attributes:
        setup: `JobSpec.setup`; empty for a job that Hadoop set up.
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
"""Key of a setup's name in records of Hadoop's form: the extra data of task records, and `_SUCCESS`."""

BY_PATH: Final = "committer.by-path"
"""Key in a task record's extra data: programs were given the path of the attempt's directory, and only the caller
knows when they write no more."""


def encode_record(record: Record) -> bytes:
    """Encodes a record as indented JSON; raises RecordError if it exceeds the limit of its kind."""
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
    """Returns the maximum length of a kind of record, in bytes."""
    return LIMITS[str(kind.__struct_config__.tag)]


def decode_record(data: bytes, kind: type[R], *, source: str) -> R:
    """Decodes one record; raises RecordError for another kind, or a version unknown to this release."""
    try:
        record = msgspec.json.decode(data, type=kind)
    except UNDECODABLE as error:
        raise RecordError(
            f"not a {kind.__struct_config__.tag} record: {error}",
            path=source,
            next_step="it was damaged, or another program wrote it: look at the destination; cleanup of that job with "
            "force=True deletes what it did not publish, and the old files that it moved aside",
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
    """Encodes facts as JSON lines."""
    return _FACTS.encode_lines(facts)


def decode_facts(data: bytes, *, source: str) -> list[Fact]:
    """Decodes JSON lines of facts; raises RecordError if a line is none."""
    try:
        return _FACT_LINES.decode_lines(data)
    except UNDECODABLE as error:
        raise RecordError(f"a line is not a fact: {error}", path=source) from error
