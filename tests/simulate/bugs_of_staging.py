"""Mutants of how the staging committers send what tasks wrote to a disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from committer.committers.staging.committer import StagingCommitter
from committer.committers.staging.local_files import LocalFiles
from committer.errors import StoreError
from tests.simulate.patches import Patches


def files_not_sent_passed_over(patches: Patches) -> None:
    """A file that could not be sent is left out of the task's record."""
    original = LocalFiles._send

    async def settle(self: Any, files: Sequence[Any]) -> list[Any]:
        sent = []
        for file in files:
            try:
                sent.append(await original(self, file))
            except StoreError:
                continue
        return sent

    patches.method(LocalFiles, "settle", settle)


def uploads_of_a_task_commit_forgotten(patches: Patches) -> None:
    """An attempt whose commit fails half way aborts none of the uploads that it began."""

    def uploads(self: Any) -> list[Any]:
        return []

    async def settle(self: Any, files: Sequence[Any]) -> list[Any]:
        settled = [await self._send(file) for file in files]
        self.uploads = self._uploaded.uploads
        return settled

    patches.method(LocalFiles, "uploads", uploads)
    patches.method(LocalFiles, "settle", settle)


def local_files_left(patches: Patches) -> None:
    """What an attempt kept on its machine's disk stays there."""

    async def close(self: Any) -> None:
        return

    async def forget(self: Any, context: Any) -> None:
        return

    patches.method(LocalFiles, "close", close)
    patches.method(StagingCommitter, "forget", forget)


OF_STAGING: tuple[Callable[[Patches], None], ...] = (
    files_not_sent_passed_over,
    uploads_of_a_task_commit_forgotten,
    local_files_left,
)
