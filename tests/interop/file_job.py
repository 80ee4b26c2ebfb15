"""Hadoop's own FileOutputCommitter on a local disk, both algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import committer
from committer import CommitterConfig, JobReport, JobSpec

from .hadoop import Hadoop, JavaJob, in_java

VERSION = "mapreduce.fileoutputcommitter.algorithm.version"


class FileOutputJob(JavaJob):
    """One job of FileOutputCommitter's.

    Args:
        hadoop: The JVM.
        destination: Where it writes.
        version: Which algorithm.
        conf: Hadoop options.
    """

    def __init__(
        self, hadoop: Hadoop, destination: Path, version: int = 1, conf: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(hadoop, destination, 1, None, {VERSION: str(version), **(conf or {})})
        self.version = version

    def _committer(self, context: Any = None) -> Any:
        output = self._hadoop.mapreduce.lib.output
        return output.FileOutputCommitter(self._hadoop.path(self.destination), context or self._task_context(0, 0))

    async def commit(self) -> dict[str, int]:
        """Commits the job; it counts nothing."""
        await in_java(lambda: self._committer().commitJob(self._job_context()))
        return {}

    def spec(self, config: CommitterConfig | None = None) -> JobSpec:
        """By what Python joins it."""
        name = f"file-v{self.version}"
        return JobSpec.for_hadoop(self.destination, self.id, self.attempt, config=config, committer=name)

    async def commit_by_python(self, config: CommitterConfig | None = None, tasks: int | None = None) -> JobReport:
        """Python commits it."""
        async with committer.attach_job(self.spec(config)) as attached:
            return await attached.commit(tasks=tasks)
