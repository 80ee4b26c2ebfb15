"""Checks of ``committer doctor --spark`` on executors: tasks that write, and Python workers that reach the store."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import pickle
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from committer import sync
from committer.api.task import open_task
from committer.errors import CommitterError, JobNotFoundError
from committer.paths import StorePath
from committer.spark.options import WriteOptions, parse_options, path_option
from committer.spark.session_settings import add_from_session
from committer.spec import JobSpec
from committer.stores.examination import Finding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DISTRIBUTION: Final = "lake-committer"
_MOST_TASKS: Final = 256
_TASK_MS: Final = 300
_SETTLED_S: Final = 2.0
_NONE_AFTER_S: Final = 60.0
_WHERE: Final = re.compile(r"\((\S+) executor (\S+?)\)")
_CAUSE: Final = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
_CLASS: Final = re.compile(r"^(?:[\w$]+\.)+(?P<name>[\w$]+): ")
_NEEDED: Final = (
    "executors need the same jars and rights as the driver's JVM: settings reach them, but no file of the driver's"
    " machine (of credentials, for example), and no variable of its environment (HADOOP_CREDSTORE_PASSWORD)"
)
_ONE_PLACE: Final = (
    "mount the disk of the destination at the same path on each machine, or write to a store that all reach"
)
_PYTHON_WRITES: Final = (
    'writer="python", format("committer"), streams and foreach_partition need it; Spark\'s own writers do not'
)


class Seen(msgspec.Struct, frozen=True):
    """Report of an executor's Python worker; `release` is empty without this package, `error` if all is well."""

    host: str
    python: str
    release: str = ""
    error: str = ""
    next_step: str = ""


def of_executors(session: SparkSession, destination: StorePath, offered: Callable[[], int | None]) -> Iterator[Finding]:
    """Writes with Spark's own writer, and reaches the destination from Python workers. Blocks; commits nothing.

    `offered` returns how many attempts Spark asked to commit; None if Spark did not get that far.
    """
    context: Any = session.sparkContext
    with _bounded(context):
        yield _of_writes(session, destination, offered)
        yield _of_python(session, destination)


def _of_writes(session: SparkSession, destination: StorePath, offered: Callable[[], int | None]) -> Finding:
    name, context = "executors", session.sparkContext
    _wait_for_executors(context)
    tasks = max(1, min(context.defaultParallelism, _MOST_TASKS))
    # A slow task keeps its executor busy, so that each executor gets one.
    slow = f"concat(id, coalesce(java_method('java.lang.Thread', 'sleep', {_TASK_MS}L), '')) value"
    try:
        session.range(0, tasks, 1, tasks).selectExpr(slow).write.mode("append").text(str(destination))
    except Exception as error:
        if offered() is None:
            return Finding(name, "failed", *_failed(str(error)))
    if offered() != tasks:
        return Finding(name, "failed", f"{offered()} of {tasks} tasks were committed", "report this")
    return Finding(name, "ok", f"{_which(context)}; {tasks} task(s) wrote into a job, which was aborted")


def _which(context: Any) -> str:
    java = context._jsc.sc()
    java.listenerBus().waitUntilEmpty()
    listed = java.statusStore().executorList(True)
    found = [listed.apply(number) for number in range(listed.size())]
    if java.isLocal():
        return "tasks run in the driver's JVM (local mode)"
    executors = [one for one in found if one.id() != "driver"]
    worked = sorted((one.id(), one.hostPort()) for one in executors if one.completedTasks())
    places = ", ".join(f"{number} at {place.rpartition(':')[0]}" for number, place in worked)
    return f"{len(worked)} of {len(executors)} took tasks: {places}"


def _of_python(session: SparkSession, destination: StorePath) -> Finding:
    name = "Python on executors"
    settings = {"path": path_option(destination)}
    try:
        withheld = add_from_session(session.range(1), settings)
        options, context = parse_options(settings), session.sparkContext
        tasks = max(1, min(context.defaultParallelism, _MOST_TASKS))
        storage = options.storage_options()
        job = sync.open_job(options.path, config=options.config, storage_options=storage)
        try:
            look = _look(pickle.dumps((job.spec, options)))
            told = context.parallelize(range(tasks), tasks).mapPartitions(look).collect()
        finally:
            job.abort()
            job.close()
    except CommitterError as error:
        return Finding(name, "warning", error.message, error.next_step)
    except Exception as error:
        said, _ = _failed(str(error))
        step = f"name an interpreter of the executors in PYSPARK_PYTHON; {_PYTHON_WRITES}"
        return Finding(name, "warning", said, step)
    return _of_seen(name, {Seen(**one) for one in told}, withheld)


def _of_seen(name: str, seen: Iterable[Seen], withheld: str) -> Finding:
    own = importlib.metadata.version(_DISTRIBUTION)
    hosts: dict[tuple[str, str, str, str], set[str]] = {}
    for one in seen:
        hosts.setdefault((one.error, one.next_step, one.release, one.python), set()).add(one.host)
    for (error, step, release, python), where in sorted(hosts.items(), reverse=True):
        place = f"by {python} on {', '.join(sorted(where))}"
        if error:
            step = "; ".join(text for text in (withheld if release else "", step, _PYTHON_WRITES) if text)
            return Finding(name, "warning", f"{error}, {place}", step)
        if release != own:
            told = f"release {release} {place}, and {own} here"
            return Finding(name, "warning", told, f"install one release on all machines; {_PYTHON_WRITES}")
    (_, _, release, python), where = next(iter(hosts.items()))
    return Finding(name, "ok", f"wrote into a job with release {release}, by {python}")


def _look(options: bytes) -> Callable[[Iterable[int]], Iterator[dict[str, str]]]:
    """Returns the worker's function. A nested function is pickled by value: workers may lack this package."""

    def look(numbers: Iterable[int]) -> Iterator[dict[str, str]]:
        import importlib
        import socket
        import sys
        import time

        time.sleep(0.3)
        number = next(iter(numbers), 0)
        told = {"host": socket.gethostname(), "python": sys.executable}
        try:
            importlib.import_module("pyarrow")

            from committer.spark.examining_executors import looked
        except ImportError as error:
            step = "pip install 'lake-committer[spark]' there, for that interpreter, or name another in PYSPARK_PYTHON"
            yield {**told, "error": str(error), "next_step": step}
        else:
            yield {**told, **looked(options, number)}

    return look


def looked(data: bytes, number: int) -> dict[str, str]:
    """Writes into the driver's job from a worker; `data` is a pickled `JobSpec` and `WriteOptions`."""
    told = {"release": importlib.metadata.version(_DISTRIBUTION)}
    try:
        spec, options = pickle.loads(data)  # noqa: S301 - Spark's own channel, from the driver
        asyncio.run(_write(spec, options, number))
    except JobNotFoundError as error:
        return {
            **told,
            "error": f"it does not see the job that the driver set up: {error.message}",
            "next_step": _ONE_PLACE,
        }
    except CommitterError as error:
        return {**told, "error": error.message, "next_step": error.next_step}
    return told


async def _write(spec: JobSpec, options: WriteOptions, number: int) -> None:
    storage = await options.resolve_storage()
    async with open_task(spec, task=number, storage_options=storage) as task, task.open(f"part-{number}") as file:
        await file.write(b"committer doctor")


def _wait_for_executors(context: Any) -> None:
    """Waits until no new executor has appeared for a while, so that each gets a task."""
    java = context._jsc.sc()
    if java.isLocal():
        return
    began = changed = time.monotonic()
    before = -1
    while time.monotonic() - changed < _SETTLED_S or (before < 1 and time.monotonic() - began < _NONE_AFTER_S):
        now = java.getExecutorMemoryStatus().size() - 1
        if now != before:
            before, changed = now, time.monotonic()
        time.sleep(0.2)


@contextlib.contextmanager
def _bounded(context: Any) -> Iterator[None]:
    """Cancels the block's jobs if no executor appears."""
    group = f"committer-doctor-{uuid.uuid4()}"
    java = context._jsc.sc()

    def cancel() -> None:
        if java.getExecutorMemoryStatus().size() < 2 and not java.isLocal():
            context.cancelJobGroup(group)

    context.setJobGroup(group, "committer doctor --spark", interruptOnCancel=True)
    timer = threading.Timer(2 * _NONE_AFTER_S, cancel)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _failed(text: str) -> tuple[str, str]:
    """Returns message and next step of a failed Spark job: its last cause, and the executor."""
    if "cancelled" in text and "Lost task" not in text:
        return "no executor took a task", "see in Spark's cluster manager why this application gets no executors"
    causes = _CAUSE.findall(text)
    first = text.strip().splitlines()[0] if text.strip() else "no reason given"
    message, _, step = _CLASS.sub(_without_package, causes[-1] if causes else first).partition("; next step: ")
    where = _WHERE.search(text)
    told = f"{message}, on executor {where[2]} at {where[1]}" if where and where[2] != "driver" else message
    return told, step or _NEEDED


def _without_package(match: re.Match[str]) -> str:
    return "" if match["name"] == "CommitException" else f"{match['name']}: "
