"""What processes of an executor run in tests: they must be found by their module's name."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from committer import sync
from committer.api.publishing import PublishAccount, PublishChunk
from committer.stages.publish.publish import PublishFiles


def die_once(chunk: PublishChunk, mark: str, after: int) -> PublishAccount:
    """Publishes; the first process that gets here is killed after so many files."""
    if _is_first(mark):
        _die_after(after)
    return sync.publish_chunk(chunk)


def publish(chunk: PublishChunk, storage_options: Mapping[str, object] | None = None) -> PublishAccount:
    """Publishes."""
    return sync.publish_chunk(chunk, storage_options)


def _is_first(mark: str) -> bool:
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _die_after(files: int) -> None:
    together = PublishFiles._publish_together

    async def some(self: PublishFiles, store: object, planned: list[object], *, looks: bool) -> int:
        await together(self, store, planned[:files], looks=looks)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    PublishFiles._publish_together = some  # type: ignore[method-assign, assignment]
