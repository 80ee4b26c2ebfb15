"""Jobs of the committers that publish by completing uploads, on a server that speaks S3."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from tests.processes.harness import TIMEOUT_S, environment
from tests.s3 import killed_driver
from tests.s3.bucket import BucketChannel, options_for
from tests.s3.killed_driver import Orders
from tests.s3.servers import Server

_commit_calls: dict[tuple[str, str], int] = {}


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

    async def commit_calls(self, orders: Orders) -> int:
        """How many store calls the commit of such a job makes where nothing disturbs it; counted once for a committer and config."""
        key = (self.kind, str(orders.config))
        if key not in _commit_calls:
            undisturbed = self._replace(root=self.root.parent / "undisturbed")
            status, said = await undisturbed._run(msgspec.structs.replace(orders, dies_at=sys.maxsize))
            assert status == 0
            _commit_calls[key] = int(said)
        return _commit_calls[key]

    async def killed(self, orders: Orders) -> bool:
        """Whether a process that runs a job died before the store call of its orders, or ended."""
        status, _said = await self._run(orders)
        return status == -9

    async def _run(self, orders: Orders) -> tuple[int | None, bytes]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(killed_driver.__file__)),
            self.root.uri,
            self.server.url,
            self.kind,
            msgspec.json.encode(orders).decode(),
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(TIMEOUT_S):
            out, said = await process.communicate()
        assert process.returncode in (0, -9), said.decode()
        return process.returncode, out
