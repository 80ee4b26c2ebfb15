"""Jobs of Hadoop's committers on a store that a test serves: what they share, whatever the store."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import reduce
from typing import Any, ClassVar

from .filesystem import HadoopFileSystem
from .hadoop import IDENTIFIER, SPARK_WRITE_UUID, in_java, job_context, task_context
from .jvm import Jvm

# What could go wrong between a name, Hadoop's Path, a URL and a record.
NAMES = (
    "plain.csv",
    "p=1/with space.csv",
    "p=1/percent 100%.csv",
    "p=a%20b%2F/hash#?+&=[].csv",
    "unicode/Grüße.csv",
    "東京/データ.csv",
    "combining/e\u0301 and \u00e9.csv",
    "emoji/🎉.csv",
    "a/b/c/d.csv",
)


class StoreJob(ABC):
    """A job of one of Hadoop's committers; each call makes a new committer, as separate processes would.

    Args:
        jvm: Where Java runs.
        uri: The destination.
        conf: Hadoop's options.
        uuid: The job's id, where it is not MapReduce's.
        number: Of the MapReduce job id.

    Attributes:
        uri: The destination.
        id: The job's id.
    """

    def __init__(self, jvm: Jvm, uri: str, conf: Any, *, uuid: str | None = None, number: int = 1) -> None:
        self.uri = uri
        self.id = uuid or f"job_{IDENTIFIER}_{number:04d}"
        self._jvm = jvm
        self._conf = conf
        self._number = number

    def join(self, unique_id: str) -> None:
        """Makes this the job that has this unique id: `JobSpec.unique_id` of one that Python set up. Calls Java."""
        self.id = unique_id
        for key in ("fs.s3a.committer.uuid", SPARK_WRITE_UUID):
            self._conf.set(key, unique_id)

    @abstractmethod
    def committer(self, context: Any) -> Any:
        """A new committer. Calls Java."""

    def path(self, below: str = "") -> Any:
        """Hadoop's Path of the destination, or of something below it. Calls Java."""
        return self._jvm.view.org.apache.hadoop.fs.Path(f"{self.uri}/{below}" if below else self.uri)

    def filesystem(self) -> Any:
        """Hadoop's FileSystem of the destination. Calls Java."""
        return self.path().getFileSystem(self._conf)

    def filesystem_of(self, work: Any) -> Any:
        """Hadoop's FileSystem of what a task attempt writes to. Calls Java."""
        return self.filesystem()

    async def setup(self) -> None:
        """Sets the job up."""
        await in_java(lambda: self.committer(self._task(0)).setupJob(self._job()))

    async def run_task(self, task: int, files: Mapping[str, bytes], attempt: int = 0, *, commits: bool = True) -> None:
        """Runs a task attempt; without `commits` it is left when its files are written."""

        def run() -> None:
            context = self._task(task, attempt)
            committer = self.committer(context)
            committer.setupTask(context)
            work = committer.getWorkPath()
            filesystem = self.filesystem_of(work)
            for name, data in files.items():
                stream = filesystem.create(self._jvm.view.org.apache.hadoop.fs.Path(f"{work}/{name}"), True)
                stream.write(data)
                stream.close()
            if commits:
                committer.commitTask(context)

        await in_java(run)

    async def abort_task(self, task: int, attempt: int = 0) -> None:
        """As a driver does for an attempt of another host."""
        await in_java(lambda: self.committer(self._task(0)).abortTask(self._task(task, attempt)))

    async def commit(self) -> Any:
        """Commits the job; Java's committer, which may know more of it."""

        def commit() -> Any:
            committer = self.committer(self._task(0))
            committer.commitJob(self._job())
            return committer

        return await in_java(commit)

    def _job(self) -> Any:
        return job_context(self._jvm.view.org.apache.hadoop.mapreduce, self._conf, self._number)

    def _task(self, task: int, attempt: int = 0) -> Any:
        return task_context(self._jvm.view.org.apache.hadoop.mapreduce, self._conf, self._number, task, attempt)


class ManifestCommitterJob(StoreJob):
    """A job of Hadoop's manifest committer.

    Args:
        jvm: Where Java runs.
        opened: The destination's filesystem, opened: Hadoop's cache is off.

    Attributes:
        factory: The Java class that makes the committer.
    """

    factory: ClassVar[str] = "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory"

    def __init__(self, jvm: Jvm, opened: HadoopFileSystem) -> None:
        super().__init__(jvm, f"{opened.root}/table", opened.conf)
        self._opened = opened

    def committer(self, context: Any) -> Any:
        """As Hadoop's factory makes one."""
        factory: Any = reduce(getattr, self.factory.split("."), self._jvm.view)
        return factory().createOutputCommitter(self.path(), context)

    def filesystem(self) -> Any:
        """The one that was opened."""
        return self._opened.filesystem

    async def commit(self) -> dict[str, int]:
        """Commits the job; the counters of its report."""
        made = await super().commit()
        report = await in_java(lambda: str(made.getSuccessReport().toJson()))
        counters: dict[str, int] = json.loads(report)["iostatistics"]["counters"]
        return counters

    async def success(self) -> dict[str, Any]:
        """`_SUCCESS`, loaded and validated by Java."""

        def load() -> str:
            view = self._jvm.view.org.apache.hadoop.mapreduce.lib.output.committer.manifest.files
            record = view.ManifestSuccessData.load(self.filesystem(), self.path("_SUCCESS"))
            record.validate()
            return str(record.toJson())

        loaded: dict[str, Any] = json.loads(await in_java(load))
        return loaded
