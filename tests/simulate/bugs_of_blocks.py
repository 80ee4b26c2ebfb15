"""Mutants of how the committer block-list makes files of blocks, and rolls them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from committer.errors import StoreError, StoreExistsError, StorePartsError
from committer.stages.publish.sent_files import PutBlockLists
from committer.stages.task.commit_task import CommitTask
from committer.stages.task.sent_files import BlockFiles
from committer.stages.undo.roll_back import RollBackBlocks
from tests.simulate.patches import Patches


def lists_put_by_tasks(patches: Patches) -> None:
    """A task makes files of its blocks as it commits."""
    original = CommitTask.execute

    async def execute(self: CommitTask, value: Any) -> Any:
        message = await original(self, value)
        store: Any = self.context.store
        for file in value.files:
            target = self.context.layout.target(file.destination)
            await store.put_block_list(target, file.upload.etags, stamp=self.context.layout.stamp(value.directory.name))
        return message

    patches.method(CommitTask, "execute", execute)


def one_token_for_all(patches: Patches) -> None:
    """Blocks are numbered, and nothing in their ids says whose they are: all attempts send under the same ones."""
    original = BlockFiles.open

    async def open_file(self: Any, destination: str, staged: str) -> Any:
        writer: Any = await original(self, destination, staged)
        writer._token = "0" * 32
        return writer

    patches.method(BlockFiles, "open", open_file)


def lists_put_blindly(patches: Patches) -> None:
    """A list is put without condition, and one that is refused counts as put."""

    async def finish(self: PutBlockLists, file: Any, target: Any, *, identity: str | None) -> None:
        store: Any = self.context.store
        try:
            await store.put_block_list(target, file.upload.etags, stamp=file.stamp)
        except StorePartsError:
            return

    patches.method(PutBlockLists, "_finish", finish)


def lost_lists_put_again(patches: Patches) -> None:
    """A driver takes any file at a refused block list's name for its own."""

    async def finish(self: PutBlockLists, file: Any, target: Any, *, identity: str | None) -> None:
        store: Any = self.context.store
        for _try in range(3):
            try:
                await store.put_block_list(
                    target, file.upload.etags, stamp=file.stamp, exclusive=identity is None, identity=identity
                )
                return
            except (StorePartsError, StoreExistsError):
                return
            except StoreError:
                continue

    patches.method(PutBlockLists, "_finish", finish)


def blocks_left_by_a_rollback(patches: Patches) -> None:
    """What was not published yet is left as it is: a late list makes a file of it."""

    async def end(self: Any, file: Any) -> None:
        await self._deleted(file)

    patches.method(RollBackBlocks, "_end", end)


OF_BLOCKS: tuple[Callable[[Patches], None], ...] = (
    lists_put_by_tasks,
    one_token_for_all,
    lists_put_blindly,
    lost_lists_put_again,
    blocks_left_by_a_rollback,
)
