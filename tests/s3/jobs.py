"""Jobs of the committers that publish by completing uploads, on a server that speaks S3."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from tests.s3.bucket import BucketChannel, options_for
from tests.s3.servers import Server


class Jobs(NamedTuple):
    """Jobs of one committer into one directory.

    Attributes:
        kind: The name of the committer.
        server: Where they run.
        root: Their destination.
        disk: Where the staging committers keep files until their task commits.
    """

    kind: str
    server: Server
    root: StorePath
    disk: Path

    @property
    def channel(self) -> BucketChannel:
        """The way to the files that does not go through the store."""
        return BucketChannel(self.server.client, self.root)

    @property
    def options(self) -> dict[str, object]:
        return options_for(self.server)

    @property
    def sends_at_once(self) -> bool:
        """Whether files are sent as they are written, not when their task commits."""
        return self.kind == "magic"

    def config(self, **choices: Any) -> CommitterConfig:
        return CommitterConfig(**choices, **({} if self.sends_at_once else {"staging_directories": (str(self.disk),)}))

    def open(
        self, *, delivery: str = "listing", store: object = None, job_id: str | None = None, **choices: Any
    ) -> Any:
        """`open_job`, with choices of the configuration."""
        return committer.open_job(
            self.root,
            job_id=job_id,
            committer=self.kind,
            delivery=delivery,  # type: ignore[arg-type]
            config=self.config(**choices),
            storage_options=self.options if store is None else {"store": store},
        )

    async def commit(self, files: dict[str, bytes], *, by_path: bool = False, **more: Any) -> committer.JobReport:
        """Commits a job of one task; with `by_path` every other file is written by its path."""
        async with self.open(**more) as job:
            async with job.task_attempt(0) as task:
                for number, (name, data) in enumerate(files.items()):
                    if by_path and number % 2 == 0:
                        await asyncio.to_thread(Path(task.work_path(name)).write_bytes, data)
                        continue
                    async with task.open(name) as file:
                        await file.write(data)
            return await job.commit(tasks=1)  # type: ignore[no-any-return]

    def kept(self) -> list[str]:
        """The files that lie on this machine's disk."""
        return sorted(path.name for path in self.disk.rglob("*") if path.is_file())
