"""A file whose bytes go to the store at once, and which appears when its job is committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from committer.paths import StorePath
from committer.stages.part_writer import PartWriter, Sending
from committer.stores.base import Store
from committer.stores.upload_ends import end_upload
from committer.stores.uploads import UPLOADS, UploadPart


class UploadWriter(PartWriter[UploadPart]):
    """Sends the parts of an upload, several at a time, and never completes it. Giving the file up aborts it.

    Args:
        store: The store, which has uploads.
        path: Where the file will stand.
        upload_id: The upload, which no other writer writes to.
        sending: How its parts are sent, and what it was created with.
        finished: Told the parts of the file once it is closed.
    """

    def __init__(
        self,
        store: Store,
        path: StorePath,
        upload_id: str,
        sending: Sending,
        finished: Callable[[Sequence[UploadPart]], None],
    ) -> None:
        super().__init__(store, path, sending, finished)
        self._uploads = UPLOADS.required(store, "open_writer", path)
        self._upload_id = upload_id

    async def _put(self, number: int, data: bytearray) -> UploadPart:
        return await self._uploads.put_part(self._path, self._upload_id, number, data)

    async def _close_empty(self) -> None:
        # One part without content: a completion names at least one.
        await self._send()

    async def _drop(self) -> None:
        await end_upload(self._store, self._path, self._upload_id)
