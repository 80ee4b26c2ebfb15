"""Answers ``committer inspect``, for any record of this engine or Hadoop, and ``committer validate``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec
from rich.console import Group

from committer.api.load_record import load_record
from committer.api.validate import names_manifest_committer_in_vain, validate
from committer.cli.output import Answer, Part, line, pairs, table
from committer.cli.session import Session, named
from committer.cli.text import Exit, command, destination_above
from committer.errors import RecordError, StoreError, StoreIsADirectoryError
from committer.events import names
from committer.layout import INTENT, MANIFEST_SUFFIX, PLAN, RECORDS, SUCCESS, TEMPORARY
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.readable import count, size
from committer.records.job_state import Decision, Entry, Intent, JobOpened, JobOutcome, JobSetup, decode_facts
from committer.records.manifest import TaskManifest, decode_task_manifest
from committer.records.pending_set import PendingCommit, PendingSet
from committer.records.pending_uploads import UploadList
from committer.records.statistics import IOStatistics
from committer.records.success import SuccessData

# Of files in a directory that was named in place of a record.
_RECORD_NAMES: Final = frozenset({SUCCESS, *RECORDS})
_SUFFIXES: Final = (MANIFEST_SUFFIX, ".pending", ".pendingset", ".append", ".replace")
_PREFIXES: Final = (PLAN, INTENT)
_MOST_NAMED: Final = 5
_MOST_LISTED: Final = 1_000

_KINDS: Final[dict[type, str]] = {
    TaskManifest: "task manifest",
    SuccessData: "success record",
    PendingCommit: "pending upload",
    PendingSet: "pending set",
    UploadList: "list of uploads",
    JobSetup: "job setup",
    JobOpened: "opened",
    Intent: "intent to commit",
    Decision: "decision",
    JobOutcome: "outcome",
    Entry: "entry of a job that commits",
}
_DIRECTORY_STATES: Final = ("unknown", "absent", "a file", "there", "made")
_CLASSIC: Final = (
    "an empty _SUCCESS: the marker of Hadoop's classic committer (FileOutputCommitter, or Parquet's over it). It says "
    "that a job ended well, and neither which one nor with what files"
)
TRAP: Final = (
    "it names the manifest committer, and that committed no file. Either the job wrote nothing, or its files went past "
    "the committer: Spark with only the committer factory set writes straight into the destination, so that failed "
    "tasks leave files there too. See `committer validate`"
)


async def inspect(session: Session, path: str, limit: int) -> Answer:
    """Reads one record and describes it."""
    try:
        record = await load_record(path, **session.reach)
    except StoreIsADirectoryError as error:
        error.next_step = await records_in(session, path)
        raise
    except RecordError as error:
        return await _other(session, path, error, limit)
    kind = _KINDS.get(type(record), type(record).__name__)
    show = _SHOWN.get(type(record), _own)
    notes: list[str] = []
    # Statistics are decoded only on request; an inspected record is shown whole.
    if isinstance(record, TaskManifest | SuccessData):
        record.iostatistics = record.statistics(source=path).compact()
    elif isinstance(record, PendingCommit):
        record = _with_statistics(record, path)
    elif isinstance(record, PendingSet):
        commits = tuple(_with_statistics(one, path) for one in record.commits)
        record = _with_statistics(msgspec.structs.replace(record, commits=commits), path)
    if isinstance(record, SuccessData) and names_manifest_committer_in_vain(record):
        notes.append(TRAP)
    parts = [line(kind, "bold"), *show(record, limit), *(line(f"warning: {note}", "yellow") for note in notes)]
    return Answer({"path": path, "kind": kind, "record": record, "warnings": notes}, parts)


async def _other(session: Session, path: str, error: RecordError, limit: int) -> Answer:
    """Describes a file that is no single JSON object: the classic committer's marker, or a decision's side file."""
    place = StorePath.of(path)
    async with session.store(place) as store:
        try:
            data = await store.read(place, limit=session.config.record_size_limit)
        except StoreError:
            raise error from None
    if not data and place.name == SUCCESS:
        kind = "classic success marker"
        return Answer(
            {"path": path, "kind": kind, "record": None, "warnings": [_CLASSIC]}, [line(kind, "bold"), line(_CLASSIC)]
        )
    if place.name.startswith(PLAN):
        return _side_file(path, data, limit)
    raise error


def _side_file(path: str, data: bytes, limit: int) -> Answer:
    kind, copies = "side file of a decision", _copies(data, path)
    record: object = copies
    if copies:
        rows = [(f"{len(copy.files):,}", copy.taskAttemptID) for copy in copies]
        parts = [line("copies of task records", "bold"), _listed(("files", "task attempt"), rows, limit, right=(0,))]
    else:
        record = facts = decode_facts(data, source=path)
        parts = [line(kind, "bold"), *([_table_of(facts, limit)] if facts else [])]
    return Answer({"path": path, "kind": kind, "record": record, "warnings": []}, parts)


def _copies(data: bytes, path: str) -> list[TaskManifest]:
    """Decodes concatenated copies of records; empty if the file holds something else."""
    text, at, found = data.decode(errors="surrogateescape"), 0, list[TaskManifest]()
    try:
        while at < len(text):
            end = json.JSONDecoder().raw_decode(text, at)[1]
            copy = text[at:end].encode(errors="surrogateescape")
            found.append(decode_task_manifest(copy, source=path))
            at = end + len(text[end:]) - len(text[end:].lstrip())
    except (ValueError, RecordError):
        return []
    return found


def _success(record: SuccessData, limit: int) -> list[Part]:
    counters = record.statistics().counters
    files = counters.get(names.COMMITTER_FILES_COMMITTED, counters.get(names.COMMITTER_COMMITS_COMPLETED))
    stored = counters.get(names.COMMITTER_BYTES_COMMITTED)
    members = [
        ("job", record.jobId),
        ("job id from", record.jobIdSource),
        ("success", "yes" if record.success else "NO: a report of a job that failed"),
        ("written", _moment(record.timestamp)),
        ("host", record.hostname),
        ("committer", record.committer),
        ("description", record.description),
        ("state", record.state),
        ("stage", record.stage),
        ("files committed", f"{files:,}" if files is not None else "not said"),
        ("bytes committed", size(stored) if stored is not None else "not said"),
    ]
    parts = [pairs(members)]
    if record.filenames:
        lengths: Sequence[int | None] = record.lengths or [None] * len(record.filenames)
        found = sorted(zip(record.filenames, lengths, strict=True), key=lambda pair: pair[0])
        rows = [("" if length is None else size(length), name) for name, length in found]
        parts.append(_listed(("size", "file"), rows, limit, right=(0,)))
    if record.diagnostics:
        parts += [line(""), line("diagnostics", "bold"), pairs(sorted(record.diagnostics.items()), indent=2)]
    return parts + _statistics(record.statistics())


def _statistics(found: IOStatistics) -> list[Part]:
    found = found.compact()
    measured = {name.removesuffix(names.MEAN) for name in found.meanstatistics}
    rows = []
    for name in sorted({*found.counters, *found.gauges, *measured}):
        # A duration's minimum, mean and maximum have their own names; a sample's share its name.
        suffixed = f"{name}{names.MEAN}" in found.meanstatistics
        mean = found.meanstatistics.get(f"{name}{names.MEAN}" if suffixed else name)
        least = found.minimums.get(f"{name}{names.MINIMUM}" if suffixed else name)
        most = found.maximums.get(f"{name}{names.MAXIMUM}" if suffixed else name)
        unit = " ms" if suffixed else ""
        rows.append(
            (
                name,
                f"{found.counters.get(name, found.gauges.get(name, 0)):,}",
                f"{least:,}{unit}" if least is not None else "",
                f"{mean.mean:,.1f}{unit}" if mean is not None else "",
                f"{most:,}{unit}" if most is not None else "",
            )
        )
    if not rows:
        return []
    head = ("name", "count", "least", "mean", "most")
    return [line(""), line("statistics", "bold"), table(head, rows, right=(1, 2, 3, 4))]


def _manifest(record: TaskManifest, limit: int) -> list[Part]:
    root = record.taskAttemptDir.partition(f"/{TEMPORARY}/")[0].removeprefix("file://").removeprefix("file:")

    def below(uri: str) -> str:
        plain = uri.removeprefix("file://").removeprefix("file:")
        return plain.removeprefix(f"{root}/") if root else uri

    members = [
        ("job", record.jobId),
        ("job attempt", record.jobAttemptNumber),
        ("task", record.taskID),
        ("task attempt", record.taskAttemptID),
        ("written in", record.taskAttemptDir),
        ("files", f"{len(record.files):,}"),
        ("bytes", size(sum(entry.z for entry in record.files))),
        ("directories", f"{len(record.directories):,}"),
        ("identities", "yes" if any(entry.e for entry in record.files) else "none"),
        *sorted(record.extraData.items()),
    ]
    parts = [pairs(members)]
    if record.files:
        rows = [(size(entry.z), below(entry.d)) for entry in record.files]
        parts.append(_listed(("size", "destination"), rows, limit, right=(0,)))
    if record.directories:
        states = [entry.t if 0 <= entry.t < len(_DIRECTORY_STATES) else 0 for entry in record.directories]
        rows = [
            (_DIRECTORY_STATES[state], below(entry.d)) for state, entry in zip(states, record.directories, strict=True)
        ]
        parts.append(_listed(("was", "directory"), rows, limit))
    return parts + _statistics(record.statistics())


_Pending = TypeVar("_Pending", PendingCommit, PendingSet)


def _with_statistics(record: _Pending, path: str) -> _Pending:
    return msgspec.structs.replace(record, iostatistics=record.statistics(source=path).compact())


def _pending_set(record: PendingSet, limit: int) -> list[Part]:
    attempts = sorted({one.taskId for one in record.commits if one.taskId})
    members = [
        ("job", record.jobId),
        ("task attempt", ", ".join(attempts)),
        ("files", f"{len(record.commits):,}"),
        ("bytes", size(sum(one.length for one in record.commits))),
        *sorted(record.extraData.items()),
    ]
    parts = [pairs(members)]
    if record.commits:
        rows = [
            (size(one.length), f"{len(one.etags):,}", one.destinationKey, one.uploadId)
            for one in sorted(record.commits, key=lambda one: one.destinationKey)
        ]
        parts.append(_listed(("size", "parts", "key", "upload"), rows, limit, right=(0, 1)))
    return parts


def _pending(record: PendingCommit, _: int) -> list[Part]:
    members = [
        ("key", record.destinationKey),
        ("bucket", record.bucket),
        ("upload", record.uploadId),
        ("size", size(record.length)),
        ("parts", f"{len(record.etags):,}"),
        ("written", _moment(record.saved)),
        ("job", record.jobId),
        ("task attempt", record.taskId),
        ("note", record.text),
        *sorted(record.extraData.items()),
    ]
    return [pairs(members)]


def _own(record: msgspec.Struct, limit: int) -> list[Part]:
    """Shows a record of this engine by the names of its members: single values, then what holds more."""
    rows: list[tuple[str, str]] = []
    parts: list[Part] = []
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, CommitterConfig):
            parts += _choices(value)
        elif isinstance(value, IOStatistics):
            parts += _statistics(value)
        elif isinstance(value, msgspec.Struct):
            parts += [line(name, "bold"), *_own(value, limit)]
        elif isinstance(value, list | tuple) and value and isinstance(value[0], msgspec.Struct):
            parts.append(_table_of(value, limit))
        else:
            rows.append((name.replace("_", " "), _plain(name, value)))
    return [pairs(rows), *parts]


def _table_of(values: Sequence[msgspec.Struct], limit: int) -> Part:
    names = values[0].__struct_fields__
    rows = [[_plain(name, getattr(value, name)) for name in names] for value in values]
    return _listed(names, rows, limit)


def _plain(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else size(value) if name == "size" and isinstance(value, int) else str(value)


def _choices(config: CommitterConfig) -> list[Part]:
    chosen = [(row.field, repr(row.value)) for row in config.explain().rows if row.origin != "default"]
    return [line("choices", "bold"), pairs(chosen, indent=2)] if chosen else [line("choices: all defaults")]


def _listed(heads: Sequence[str], rows: Sequence[Sequence[str]], limit: int, *, right: Iterable[int] = ()) -> Part:
    more = [("",) * (len(heads) - 1) + (f"and {len(rows) - limit:,} more (--limit)",)] if len(rows) > limit else []
    return Group(line(""), table(heads, [*rows[:limit], *more], right=tuple(right), indent=2))


def _moment(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).isoformat(timespec="seconds") if milliseconds else ""
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms since 1970"


_SHOWN: Final[dict[type, Callable[..., list[Part]]]] = {
    TaskManifest: _manifest,
    SuccessData: _success,
    PendingCommit: _pending,
    PendingSet: _pending_set,
}


async def records_in(session: Session, path: str) -> str:
    """Returns the next step for a user who named a directory instead of a record: lists its first thousand entries."""
    place = StorePath.of(path)
    found: list[str] = []
    async with session.store(place) as store:
        with suppress(StoreError):
            listed = 0
            async for child in store.list(place):
                listed += 1
                name = child.path.name
                if not child.is_directory and _is_record(name):
                    found.append(name)
                if listed == _MOST_LISTED:
                    break
    if not found:
        jobs = command("jobs", destination_above(path) or path)
        return f"no record lies in it; this shows the jobs of a destination: `{jobs}`"
    names = sorted(found)[:_MOST_NAMED]
    first = command("inspect", f"{path.rstrip('/')}/{names[0]}")
    return f"name a record in it, such as {', '.join(names)}: `{first}`"


def _is_record(name: str) -> bool:
    return name in _RECORD_NAMES or name.endswith(_SUFFIXES) or name.startswith(_PREFIXES)


async def compare(session: Session, uri: str, limit: int) -> Answer:
    """Compares; exit code 1 if a file is missing, wrong or extra, 6 if not every file could be compared."""
    report = await validate(uri, **session.reach)
    verdict = "as its _SUCCESS says" if report.ok else "NOT as its _SUCCESS says"
    parts: list[Part] = [line(f"{uri} is {verdict}", "green" if report.ok else "bold red")]
    if not report.complete:
        few = f"compared {report.files:,} of {count(report.committed, 'file')}: _SUCCESS names no more"
        verdict = f"in these, {uri} is {verdict}"
        parts = [line(few, "bold yellow"), line(verdict, "" if report.ok else "bold red")]
    parts.append(
        pairs(
            [
                ("job", report.job_id),
                ("compared", count(report.files, "file")),
                ("complete", "yes" if report.complete else "no"),
                ("list", report.file_list),
                ("remark", report.remark),
            ],
            indent=2,
        )
    )
    for head, files, many in (
        ("missing", report.missing, report.missing_count),
        ("wrong", report.wrong, report.wrong_count),
        ("extra", report.extra, report.extra_count),
    ):
        parts += named(head, files, "bold", limit, count=many)
    code = Exit.OK if report.complete else Exit.NOT_ALL_COMPARED
    return Answer({"destination": uri, "report": report}, parts, code if report.ok else Exit.FAILED)
