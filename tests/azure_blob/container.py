"""The way to a container's blobs that does not go through the store: the vendor's client, in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import committer
from committer.paths import StorePath
from tests.azure_blob.azurite import CONTAINER, Azurite

T = TypeVar("T")


async def write_task(job: committer.Job, files: dict[str, bytes]) -> committer.TaskCommit | None:
    """Commits one task of a job."""
    async with job.task_attempt(0) as task:
        for name, data in files.items():
            async with task.open(name) as file:
                await file.write(data)
    return task.task_commit


class ContainerChannel:
    """What stands below a root."""

    def __init__(self, server: Azurite, root: StorePath) -> None:
        self._container = server.client.get_container_client(CONTAINER)
        self._prefix = f"{root.path[1:]}/"

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)

    async def files(self) -> dict[str, bytes]:
        def look() -> dict[str, bytes]:
            names = list(self._container.list_blob_names(name_starts_with=self._prefix))
            return {name.removeprefix(self._prefix): self._container.download_blob(name).readall() for name in names}

        return await self._run(look)

    async def directories(self) -> set[str]:
        return set()

    async def write(self, name: str, data: bytes) -> None:
        await self._run(lambda: self._container.upload_blob(self._prefix + name, data, overwrite=True))

    async def remove(self, name: str) -> None:
        await self._run(lambda: self._container.delete_blob(self._prefix + name))

    async def properties(self, name: str) -> Any:
        return await self._run(lambda: self._container.get_blob_client(self._prefix + name).get_blob_properties())

    async def waiting(self) -> dict[str, int]:
        """How many uncommitted blocks each name has that has no file yet."""

        def look() -> dict[str, int]:
            found = {}
            for blob in self._container.list_blobs(name_starts_with=self._prefix, include=["uncommittedblobs"]):
                client = self._container.get_blob_client(blob.name)
                _committed, blocks = client.get_block_list("all")
                if blocks:
                    found[blob.name.removeprefix(self._prefix)] = len(blocks)
            return found

        return await self._run(look)
