"""Job side of Spark's commit protocol: sets up, commits and aborts the jobs of Spark's own writers.

`CommitProtocol.java` sends JSON requests: one to set the job up, one to commit or abort it. The first answer holds
all paths that tasks need: Java computes none. A write by `committer.spark.write` carries its call's name as an
option (`CALL`), because the call and the commit protocol run on two threads of this process.

A PySpark driver is called back in its own process (`committer.spark.configure`). For any other driver the JVM starts

    python -P -m committer.spark.job_side setup|commit|abort

with the interpreter named by ``spark.committer.python``: the request on standard input, the answer on standard
output, the log on standard error. A commit continues to its end even if the JVM dies.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from typing import Any, Final, TypeAlias

import msgspec

from committer.advice import to_blocking_callers
from committer.api.job_opening import attach_job, open_job
from committer.committers.magic import attempt_directory
from committer.committers.opened_store import open_store
from committer.committers.results import JobReport
from committer.errors import CommitterError, ConfigurationError, StorePermissionError, UnsupportedError
from committer.events import Listener
from committer.file_names import root_of
from committer.flow.portal import wait_for
from committer.flow.shielded import run_shielded
from committer.layout import MANIFEST_SUFFIX, JobLayout
from committer.logs import job_logger
from committer.options.config import CommitterConfig
from committer.options.table import STAGED
from committer.paths import StorePath
from committer.records.task_commit import INLINE_LIMIT, TaskCommit
from committer.spark.carried_errors import aborted_by_spark
from committer.spark.commit_log import log_event
from committer.spark.destination import look_at
from committer.spark.jvm import building
from committer.spark.modes import SaveMode
from committer.spark.protocol_jar import check_spark
from committer.spark.publishing import SparkPool, refuse_without_executors, sendable_storage
from committer.spark.session_settings import OWN, choices_of, roots_beside, says_how_to_reach, storage_options_of
from committer.spec import JobSpec
from committer.stages.names import is_hidden

_LOG = job_logger("committer.spark")

CALL: Final = "committer.spark.write"
"""Option that holds the name of a `RunningWrite`."""


class RunningWrite:
    """State that a call of `committer.spark.write` shares with its commit.

    `job_id` is empty before setup; `error` is why setup or commit failed.
    """

    def __init__(self, config: CommitterConfig) -> None:
        self.name: str = uuid.uuid4().hex
        self.config = config
        self.job_id: str = ""
        self.report: JobReport | None = None
        self.error: CommitterError | None = None


_running: dict[str, RunningWrite] = {}


@contextmanager
def running(config: CommitterConfig) -> Iterator[RunningWrite]:
    """Registers a call while the block runs."""
    call = RunningWrite(config)
    _running[call.name] = call
    try:
        yield call
    finally:
        del _running[call.name]


def call_of(request: SetupRequest | EndRequest) -> RunningWrite | None:
    """Returns the `committer.spark.write` call that a request belongs to; None if there is none."""
    if isinstance(request, EndRequest):
        return next((call for call in list(_running.values()) if call.job_id == request.job_spec.job_id), None)
    call = _running.get(request.options.get(CALL, ""))
    if call is not None:
        call.job_id = request.job_id
    return call


PoolOf: TypeAlias = Callable[[Mapping[str, object]], SparkPool]
"""Creates a pool that publishes on the session's executors; blocks."""

_COMMITTERS: Final = frozenset({"manifest", "magic"})
_ABORT_BOUND_S: Final = 30.0
_UNSUITED: Final = {"durability": "fsync", "unique_names": True}


class SetupRequest(msgspec.Struct, frozen=True):
    """Request to set up a job.

    Attributes:
        destination: As Hadoop prints it: without escapes.
        superseded: Paths that Spark would delete now: the destination, or directories below it.
        options: Keys of Hadoop and of this library, from the session or the write.
        release: The digest of the jar's sources.
        spark: The version of the running Spark.
        output_committers: Settings that name a Hadoop output committer: class by key.
        storage: The session's Hadoop keys for reaching stores; may hold secrets.
        of_write: Keys of `options` and `storage` that the write gave, or that were set in the running session.
    """

    job_id: str
    destination: str
    dynamic: bool
    superseded: tuple[str, ...]
    options: dict[str, str]
    release: str
    spark: str = ""
    output_committers: dict[str, str] = {}
    storage: dict[str, str] = {}
    of_write: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"SetupRequest({self.job_id} at {self.destination})"


class EndRequest(msgspec.Struct, frozen=True):
    """Request to commit or abort a job; `release` is the digest of the jar's sources."""

    spec: str
    release: str
    task_commits: tuple[str, ...] = ()
    options: dict[str, str] = {}
    storage: dict[str, str] = {}

    @property
    def job_spec(self) -> JobSpec:
        """The decoded `spec`."""
        return JobSpec.decode(self.spec)

    def __repr__(self) -> str:
        return f"EndRequest({self.spec})"


@lru_cache(maxsize=64)
def _report_ignored_committer(key: str, name: str) -> None:
    """Warns, once per class, that the session's output committer is not called."""
    _LOG.warning(
        "%s=%s has no effect: Spark calls this class in its own commit protocol only, and this session's writes are"
        " committed by lake-committer; unset it, or set spark.sql.sources.commitProtocolClass to Spark's own",
        key,
        name,
    )


async def set_up(
    request: SetupRequest,
    config: CommitterConfig | None = None,
    storage: Mapping[str, object] | None = None,
    *,
    decided: CommitterConfig | None = None,
    executors: bool = False,
) -> dict[str, Any]:
    """Sets up the job of a write and returns the answer to Java: the paths and name templates that tasks need.

    Args:
        config: Options of `configure`; they replace the session's, and the write's own win.
        storage: Storage options of `configure`; they replace the session's.
        decided: All options, with those of the save mode, if `committer.spark.write` set them.
        executors: True if the committing process can start Spark jobs.
    """
    for key, name in request.output_committers.items():
        _report_ignored_committer(key, name)
    destination = StorePath.of(request.destination)
    replaced = _replaced(request, destination)
    mode: SaveMode = "overwrite" if replaced else "append"
    options = await _storage_of(destination, request, storage)
    try:
        whole = replaced.get("superseded_scope") == "destination"
        found = await look_at(destination, mode, options, CommitterConfig(), whole=whole, committers=_COMMITTERS)
    except (ConfigurationError, StorePermissionError) as error:
        says_how_to_reach(error, destination)
        raise
    if decided is None:
        _refuse_stray_call(request)
        decided = refuse_conflicts(_chosen(request, config, destination), "setup_job").replace(**replaced)
    _refuse_unsuited(decided)
    _refuse_out_of_reach(request, destination, decided.absolute_roots)
    if not executors:
        refuse_without_executors(decided, "where no driver in Python commits", "setup_job")
    job = await open_job(
        destination, job_id=request.job_id, delivery="message", config=decided, storage_options=options
    )
    try:
        identity = await _identity_of_setup(job.spec.layout, options)
        return _answer(job.spec, directories=found.directories) | {"setup_identity": identity}
    except BaseException:
        # Spark aborts no job whose setup failed.
        await run_shielded(job.abort, bound_s=_ABORT_BOUND_S)
        raise
    finally:
        await job.close()


def _replaced(request: SetupRequest, destination: StorePath) -> dict[str, Any]:
    """Returns the config fields for what an overwrite replaces; empty for an append."""
    places = [StorePath.of(text) for text in request.superseded]
    inside = [place for place in places if place.is_under(destination)]
    outside = tuple(place.path for place in places if place != destination and not place.is_under(destination))
    hidden = [place for place in inside if is_hidden(place.relative_to(destination).partition("/")[0])]
    if destination in places and hidden:
        raise UnsupportedError(
            f"{hidden[0]} is to be replaced with the table's directory {destination}, in which names that start with"
            " _ or . stay",
            operation="setup_job",
            path=hidden[0],
            next_step="move the partition to a name without _ or . at its beginning, or overwrite it alone",
        )
    if destination in places:
        return {"conflict_mode": "replace", "superseded_scope": "destination", "superseded_directories": outside}
    if places:
        names = tuple(place.relative_to(destination) for place in inside)
        return {"conflict_mode": "replace", "superseded_directories": names + outside}
    return {"conflict_mode": "replace"} if request.dynamic else {}


def _refuse_out_of_reach(request: SetupRequest, destination: StorePath, roots: tuple[str, ...]) -> None:
    """Refuses to replace a partition outside the destination in another store or below no root."""
    layout = JobLayout(destination, request.job_id, roots=roots)
    for place in map(StorePath.of, request.superseded):
        if place == destination or place.is_under(destination):
            continue
        if _store_of(place) != _store_of(destination) or root_of(f"{place.path}/", layout.roots) is None:
            raise UnsupportedError(
                f"{place}, a partition with a location of its own, is to be replaced, lies outside the table's"
                f" directory {destination}, and no root names it",
                operation="setup_job",
                path=place,
                next_step="set spark.hadoop.committer.absolute_roots to a directory above it (not above the"
                " table's directory) in the same store, or move the partition below the table's directory",
            )


def _store_of(place: StorePath) -> tuple[str, str]:
    return place.scheme, place.authority


def _refuse_stray_call(request: SetupRequest) -> None:
    if CALL in request.options:
        raise ConfigurationError(
            "this write is one of committer.spark.write, whose process does not commit it",
            operation="setup_job",
            next_step="call committer.spark.configure(session) in that process again",
        )


def _chosen(request: SetupRequest, config: CommitterConfig | None, destination: StorePath) -> CommitterConfig:
    """Merges the options of the write into those of `configure`, or of the session if there are none."""
    # Conflict modes of S3A's committers do not count: Spark's save mode decides.
    said = {
        key: value
        for key, value in {**request.storage, **request.options}.items()
        if not key.startswith((OWN, STAGED)) and (config is None or key in request.of_write)
    }
    whose = "the options of the write, or the session's Hadoop configuration"
    chosen: dict[str, Any] = choices_of(said, (), mode=None, place=destination, whose=whose)
    base = config or CommitterConfig()
    return base.replace(**{"absolute_roots": roots_beside(base.absolute_roots, destination), **chosen})


def unsuited(config: CommitterConfig) -> list[str]:
    """Lists options that files of Spark's own writers cannot have, as ``field=value``."""
    return [f"{field}={value!r}" for field, value in _UNSUITED.items() if getattr(config, field) == value]


def _refuse_unsuited(config: CommitterConfig) -> None:
    for choice in unsuited(config):
        raise ConfigurationError(
            f"{choice} cannot be had with files that Spark's own writers write",
            operation="setup_job",
            next_step=f"leave {choice.partition('=')[0]} out, or use committer.spark.write",
        )


def refuse_conflicts(config: CommitterConfig, operation: str) -> CommitterConfig:
    """Refuses options that contradict Spark's save mode."""
    scoped = config.superseded_scope not in (None, "directories") or config.superseded_directories
    if config.conflict_mode != "append" or scoped:
        raise ConfigurationError(
            "what happens to data that is there is what Spark's save mode chooses",
            operation=operation,
            next_step="leave conflict_mode, superseded_scope and superseded_directories out",
        )
    return config


async def _identity_of_setup(layout: JobLayout, options: Mapping[str, object]) -> str | None:
    """Returns the identity of the setup record on a local disk; None for other stores.

    A task whose machine sees the same identity knows that its file numbers are the driver's, and records them.
    """
    if layout.setup.scheme != "file":
        return None
    async with open_store(layout.destination, options, CommitterConfig()) as store:
        return (await store.status(layout.setup)).identity


def _answer(spec: JobSpec, *, directories: bool) -> dict[str, Any]:
    layout: JobLayout = spec.layout
    return {
        "spec": spec.encode().decode(),
        "job_id": spec.job_id,
        "unique_id": spec.unique_id,
        "destination": str(layout.destination),
        "tasks": str(layout.tasks),
        "attempts": str(layout.attempts),
        "attempts_uri": layout.attempts.uri,
        "roots": [str(layout.target(root)) for root in sorted(layout.roots)],
        "magic": str(attempt_directory(layout) / "tasks") if spec.committer == "magic" else None,
        "directories": directories,
        "setup": str(layout.setup),
        "task": _template(layout.task_id(0), "000000", "%06d"),
        "attempt": _template(layout.task_attempt_id(0, 0), "000000_0", "%06d_%d"),
        "record_suffix": MANIFEST_SUFFIX,
        "inline_limit": INLINE_LIMIT,
    }


def _template(name: str, numbers: str, formats: str) -> str:
    """Makes a format string for Java's `String.format`; a job id has no per cent sign."""
    return name.removesuffix(numbers) + formats


async def commit(
    request: EndRequest,
    listeners: tuple[Listener, ...] = (),
    progress: Any = None,
    storage: Mapping[str, object] | None = None,
    pool_of: PoolOf | None = None,
) -> JobReport:
    """Commits exactly the attempts that Spark's messages name."""
    commits = [TaskCommit.decode(text) for text in request.task_commits]
    spec = request.job_spec
    options = await _storage_of(spec.layout.destination, request, storage)
    async with attach_job(spec, listeners=listeners, progress=progress, storage_options=options) as job:
        with aborted_by_spark("write again"):
            if pool_of is None or job.spec.config.publish == "driver":
                return await job.commit(task_commits=commits, tasks=len(commits))
            pool = await asyncio.to_thread(pool_of, sendable_storage(spec.layout.destination, options))
            try:
                return await job.commit(task_commits=commits, tasks=len(commits), publish_with=pool)
            finally:
                await asyncio.to_thread(pool.close)


async def abort(request: EndRequest, storage: Mapping[str, object] | None = None) -> str:
    """Aborts a job and returns its id; raises JobDecidedError, and deletes nothing, if it is decided to commit."""
    spec = request.job_spec
    options = await _storage_of(spec.layout.destination, request, storage)
    async with attach_job(spec, storage_options=options) as job:
        await job.abort()
    return spec.job_id


async def _storage_of(
    destination: StorePath, request: SetupRequest | EndRequest, given: Mapping[str, object] | None
) -> dict[str, object]:
    """Resolves storage options in a thread, because a reference may read a file."""
    return await asyncio.to_thread(storage_options_of, destination, request.storage, request.options, given)


@cache
def _own_release() -> str:
    """Returns the running release, unchanged by a later installation over this one."""
    return building.release()


def refuse_other_release(release: str, operation: str = "setup_job") -> None:
    """Refuses a jar that was built from other sources than this package's. Reads files: not for an event loop."""
    own = _own_release()
    if release != own:
        raise UnsupportedError(
            f"the jar of the commit protocol in Spark's JVM is of release {release or 'unknown'}, the package of {own}",
            operation=operation,
            next_step="give spark.jars the jar of the installed package, committer.spark.jar_path(), and start the JVM "
            "anew",
        )


def answered(
    operation: str,
    request: str,
    *,
    config: CommitterConfig | None = None,
    progress: bool | Listener | None = None,
    storage: Mapping[str, object] | None = None,
    committed: Callable[[JobReport], object] | None = None,
    listeners: tuple[Listener, ...] = (),
    pool_of: PoolOf | None = None,
) -> str:
    """Runs one operation (``setup``, ``commit`` or ``abort``) for Java and returns JSON; an error is an answer
    too. Blocks.

    Args:
        config: Options that win over the session's.
        committed: Called with the report of a commit.
        pool_of: Creates a pool of executors, if this process can start Spark jobs.
    """
    call: RunningWrite | None = None

    def setup(asked: SetupRequest) -> dict[str, Any]:
        refuse_other_release(asked.release)
        check_spark(asked.spark, operation="setup_job")
        decided = None if call is None else call.config
        job = partial(set_up, asked, config, storage, decided=decided, executors=pool_of is not None)
        # Tasks compare the release with that of their executor's jar.
        return {**wait_for(job, "open_job"), "release": asked.release}

    def end(asked: EndRequest) -> dict[str, Any]:
        if operation == "abort":
            return {"aborted": wait_for(partial(abort, asked, storage), "abort")}
        refuse_other_release(asked.release, "commit")
        report = wait_for(partial(commit, asked, (log_event, *listeners), progress, storage, pool_of), "commit")
        if call is not None:
            call.report = report
        if committed is not None:
            committed(report)
        return {"committed": report.job_id}

    try:
        with to_blocking_callers():
            kind: type[SetupRequest | EndRequest] = SetupRequest if operation == "setup" else EndRequest
            asked = msgspec.json.decode(request, type=kind)
            call = call_of(asked)
            answer = setup(asked) if isinstance(asked, SetupRequest) else end(asked)
    except Exception as error:
        if not isinstance(error, CommitterError):
            _LOG.exception("%s of a job of Spark's failed", operation)
        elif call is not None and operation != "abort":
            call.error = error
        answer = {"error": _told(error, operation)}
    return msgspec.json.encode(answer).decode()


def _told(error: Exception, operation: str) -> str:
    if isinstance(error, CommitterError):
        return f"{type(error).__name__}: {error}"
    outcome = "unknown" if operation == "commit" else "unchanged"
    return f"{type(error).__name__}: {error}; outcome: {outcome}; next step: look at the log of the Python driver"


def main() -> None:
    """Answers the request on standard input, in UTF-8; redirects other output to standard error."""
    with open(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
        answers.write(answered(sys.argv[1], sys.stdin.buffer.read().decode()).encode())


if __name__ == "__main__":
    main()
