"""Hadoop's own ManifestCommitter on a local disk, as its Java users drive it.

Every call makes a new committer object, as separate processes would, so nothing but files connects the calls.
Java runs in a worker thread: none of this may block the event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from .jvm import Jvm

T = TypeVar("T")

DELETE_TARGET_FILES = "mapreduce.manifest.committer.delete.target.files"
VALIDATE_OUTPUT = "mapreduce.manifest.committer.validate.output"
SUMMARY_REPORT_DIRECTORY = "mapreduce.manifest.committer.summary.report.directory"
CLEANUP_SKIPPED = "mapreduce.fileoutputcommitter.cleanup.skipped"
JOB_ATTEMPT = "mapreduce.job.application.attempt.id"
SPARK_WRITE_UUID = "spark.sql.sources.writeJobUUID"

# Job ids of MapReduce are job_<identifier>_<number>; Spark's identifier is a date.
IDENTIFIER = "202401010000"


class JavaError(Exception):
    """An exception that Java threw.

    Attributes:
        kind: Its class, without the package.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


async def in_java(call: Callable[[], T]) -> T:
    """Runs `call`, which talks to Java, off the event loop. One at a time.

    Raises:
        JavaError: Java threw something.
    """
    from py4j import java_gateway
    from py4j.protocol import Py4JJavaError, get_return_value

    # Once a Spark session was made in this process, PySpark asks that one's Java about every error of any Java.
    with patch.object(java_gateway, "get_return_value", get_return_value):
        try:
            return await asyncio.to_thread(call)
        except Py4JJavaError as error:
            thrown = error.java_exception
            # Message and class are further calls into Java.
            kind, message = await asyncio.to_thread(lambda: (thrown.getClass().getSimpleName(), thrown.getMessage()))
            raise JavaError(str(kind), str(message)) from error


def job_context(mapreduce: Any, conf: Any, number: int) -> Any:
    """What MapReduce tells a committer of a job. Calls Java."""
    return mapreduce.task.JobContextImpl(conf, mapreduce.JobID(IDENTIFIER, number))


def task_context(mapreduce: Any, conf: Any, number: int, task: int, attempt: int) -> Any:
    """What MapReduce tells a committer of a task attempt. Calls Java."""
    task_id = mapreduce.TaskID(mapreduce.JobID(IDENTIFIER, number), mapreduce.TaskType.MAP, task)
    return mapreduce.task.TaskAttemptContextImpl(conf, mapreduce.TaskAttemptID(task_id, attempt))


class Hadoop:
    """Hadoop in a JVM: makes jobs, and reads what committers of either kind wrote."""

    def __init__(self, jvm: Jvm) -> None:
        self._view = jvm.view
        # Reads Hadoop's defaults once; the configurations of jobs are copies.
        self._conf = jvm.view.org.apache.hadoop.conf.Configuration()
        self._conf.size()
        self._records = jvm.view.org.apache.hadoop.mapreduce.lib.output.committer.manifest.files

    def job(
        self, destination: Path, number: int = 1, *, uuid: str | None = None, conf: Mapping[str, object] | None = None
    ) -> JavaJob:
        """A job as Java sees it; nothing is done yet.

        Args:
            destination: Where it writes.
            number: Of the MapReduce job id.
            uuid: Spark's write job UUID, which then is the job's id in place of MapReduce's.
            conf: Hadoop options.
        """
        settings = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (conf or {}).items()
        }
        if uuid is not None:
            settings[SPARK_WRITE_UUID] = uuid
        return JavaJob(self, destination, number, uuid, settings)

    async def load_manifest(self, path: Path) -> dict[str, Any]:
        """A task manifest, loaded and validated by Java, printed by Java."""
        return await self._load("TaskManifest", path)

    async def load_success(self, path: Path) -> dict[str, Any]:
        """A `_SUCCESS` file or summary report, loaded and validated by Java, printed by Java."""
        return await self._load("ManifestSuccessData", path)

    async def _load(self, kind: str, path: Path) -> dict[str, Any]:
        def load() -> str:
            at = self.path(path)
            record = getattr(self._records, kind).load(at.getFileSystem(self._conf), at)
            record.validate()
            return str(record.toJson())

        loaded: dict[str, Any] = json.loads(await in_java(load))
        return loaded

    async def destinations(self, manifest: Path) -> list[str]:
        """The file paths that Java takes a manifest's file entries to mean."""

        def load() -> list[str]:
            at = self.path(manifest)
            record = self._records.TaskManifest.load(at.getFileSystem(self._conf), at)
            return sorted(str(entry.getDestPath().toUri().getPath()) for entry in record.getFilesToCommit())

        return await in_java(load)

    async def success_files(self, path: Path) -> list[str]:
        """The file paths that Java takes the names in a `_SUCCESS` file to mean, in their order."""

        def load() -> list[str]:
            at = self.path(path)
            record = self._records.ManifestSuccessData.load(at.getFileSystem(self._conf), at)
            return [str(name.toUri().getPath()) for name in record.getFilenamePaths()]

        return await in_java(load)

    async def print_success(self, path: Path) -> str:
        """What `mapred successfile` prints of a `_SUCCESS` file."""

        def show() -> str:
            out = self._view.java.io.ByteArrayOutputStream()
            at = self.path(path)
            printer = self._records.ManifestPrinter(self._conf, self._view.java.io.PrintStream(out))
            printer.loadAndPrintManifest(at.getFileSystem(self._conf), at)
            return str(out.toString())

        return await in_java(show)

    async def read_files(self, directory: Path) -> dict[str, bytes]:
        """Every file below a directory, found, opened and read by Java, checksums verified.

        `_temporary` is left out. Keys are relative to `directory`.

        Raises:
            JavaError: Among others ChecksumException, when a stale sidecar lies beside a file.
        """

        def read() -> dict[str, bytes]:
            root = self.path(directory)
            filesystem = root.getFileSystem(self._conf)
            found = {}
            waiting = [root]
            while waiting:
                for status in filesystem.listStatus(waiting.pop()):
                    at = status.getPath()
                    if status.isDirectory():
                        if at.getName() != "_temporary":
                            waiting.append(at)
                        continue
                    stream = filesystem.open(at)
                    name = Path(str(at.toUri().getPath())).relative_to(directory).as_posix()
                    found[name] = bytes(stream.readAllBytes())
                    stream.close()
            return found

        return await in_java(read)

    async def write(self, directory: Path, files: Mapping[str, bytes], directories: tuple[str, ...] = ()) -> None:
        """Writes files and makes directories as Java does: parents are made, a `.crc` sidecar goes beside each file."""

        def write() -> None:
            filesystem = self.path(directory).getFileSystem(self._conf)
            for name, data in files.items():
                stream = filesystem.create(self.path(directory / name), True)
                stream.write(data)
                stream.close()
            for name in directories:
                filesystem.mkdirs(self.path(directory / name))

        await in_java(write)

    def path(self, path: Path) -> Any:
        """Hadoop's Path for a local one. Calls Java."""
        return self._view.org.apache.hadoop.fs.Path(f"file:{path}")

    def configuration(self, settings: Mapping[str, str]) -> Any:
        """Hadoop's defaults and `settings`. Calls Java."""
        conf = self._view.org.apache.hadoop.conf.Configuration(self._conf)
        for key, value in settings.items():
            conf.set(key, value)
        return conf

    @property
    def mapreduce(self) -> Any:
        """Hadoop's package `mapreduce`. Calls Java."""
        return self._view.org.apache.hadoop.mapreduce


class JavaJob:
    """One job of Hadoop's manifest committer.

    Attributes:
        destination: Where it writes.
        id: Its unique id: MapReduce's job id, or Spark's write job UUID.
    """

    def __init__(
        self, hadoop: Hadoop, destination: Path, number: int, uuid: str | None, settings: Mapping[str, str]
    ) -> None:
        self.destination = destination
        self.number = number
        self.id = uuid or f"job_{IDENTIFIER}_{number:04d}"
        self.attempt = int(settings.get(JOB_ATTEMPT, "0"))
        self._hadoop = hadoop
        self._settings = settings

    @property
    def attempt_directory(self) -> Path:
        """The job attempt directory."""
        return self.destination / "_temporary" / self.id / f"{self.attempt:02d}"

    @property
    def manifests(self) -> Path:
        """Where task manifests are."""
        return self.attempt_directory / "manifests"

    def manifest(self, task: int) -> Path:
        """The manifest of one task."""
        return self.manifests / f"task_{IDENTIFIER}_{self.number:04d}_m_{task:06d}-manifest.json"

    async def setup(self) -> None:
        """Sets the job up."""
        await in_java(lambda: self._committer().setupJob(self._job_context()))

    async def setup_task(self, task: int, attempt: int = 0) -> Path:
        """Sets a task attempt up; the directory it writes to."""

        def setup() -> Path:
            context = self._task_context(task, attempt)
            committer = self._committer(context)
            committer.setupTask(context)
            return Path(str(committer.getWorkPath().toUri().getPath()))

        return await in_java(setup)

    async def commit_task(self, task: int, attempt: int = 0) -> None:
        """Commits a task attempt."""
        await self._task_call("commitTask", task, attempt)

    async def abort_task(self, task: int, attempt: int = 0) -> None:
        """Aborts a task attempt."""
        await self._task_call("abortTask", task, attempt)

    async def recover_task(self, task: int, attempt: int = 0) -> None:
        """Asks for a task of an earlier job attempt to be recovered."""
        await self._task_call("recoverTask", task, attempt)

    async def needs_task_commit(self, task: int, attempt: int = 0) -> bool:
        """Whether Java wants the task attempt committed."""
        return bool(await self._task_call("needsTaskCommit", task, attempt))

    async def run_task(
        self, task: int, files: Mapping[str, bytes], *, attempt: int = 0, directories: tuple[str, ...] = ()
    ) -> None:
        """A whole task: set up, files written by Java, committed."""
        work = await self.setup_task(task, attempt)
        await self._hadoop.write(work, files, directories)
        await self.commit_task(task, attempt)

    async def commit(self) -> dict[str, int]:
        """Commits the job; the counters of its report."""

        def commit() -> str:
            committer = self._committer()
            committer.commitJob(self._job_context())
            return str(committer.getSuccessReport().toJson())

        counters: dict[str, int] = json.loads(await in_java(commit))["iostatistics"]["counters"]
        return counters

    async def abort(self) -> None:
        """Aborts the job."""

        def abort() -> None:
            failed = self._hadoop.mapreduce.JobStatus.State.FAILED
            self._committer().abortJob(self._job_context(), failed)

        await in_java(abort)

    async def is_commit_repeatable(self) -> bool:
        """Whether Java would commit the job again after a commit that failed half way."""
        return bool(await in_java(lambda: self._committer().isCommitJobRepeatable(self._job_context())))

    async def is_recovery_supported(self) -> bool:
        """Whether Java takes over the committed tasks of an earlier job attempt."""
        return bool(await in_java(lambda: self._committer().isRecoverySupported(self._job_context())))

    async def _task_call(self, method: str, task: int, attempt: int) -> object:
        def call() -> object:
            context = self._task_context(task, attempt)
            return getattr(self._committer(context), method)(context)

        return await in_java(call)

    def _job_context(self) -> Any:
        return job_context(self._hadoop.mapreduce, self._hadoop.configuration(self._settings), self.number)

    def _task_context(self, task: int, attempt: int) -> Any:
        conf = self._hadoop.configuration(self._settings)
        return task_context(self._hadoop.mapreduce, conf, self.number, task, attempt)

    def _committer(self, context: Any = None) -> Any:
        manifest = self._hadoop.mapreduce.lib.output.committer.manifest
        context = context or self._task_context(0, 0)
        return manifest.ManifestCommitter(self._hadoop.path(self.destination), context)
