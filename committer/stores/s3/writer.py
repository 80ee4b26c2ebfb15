"""A file on S3 while it is written: sent by the part, and nowhere to be seen until it is closed."""

from __future__ import annotations

from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.sending_writer import PartsWriter, PutFile
from committer.stores.upload_ends import finish_upload
from committer.stores.uploads import UPLOADS, UploadPart


class S3Writer(PartsWriter[UploadPart]):
    """Sends the parts of an upload, and completes it.

    Args:
        store: The store, which has uploads.
        path: The file.
        put_file: Puts a file whole where nothing stands.
    """

    # S3 takes 10,000 parts.
    parts_of_one_length = 1000

    def __init__(self, store: Store, path: StorePath, put_file: PutFile) -> None:
        super().__init__(path, f"writer-{current_runtime().nonce(8)}", put_file)
        self._store = store
        self._uploads = UPLOADS.required(store, "open_writer", path)
        self._upload_id = ""

    async def abort(self) -> None:
        """Gives up what was sent; a file that is closed stays."""
        if not self._open:
            return
        if self._upload_id:
            await self._uploads.abort_upload(self._path, self._upload_id)
        self._open = False
        self._buffer = bytearray()

    def _has_begun(self) -> bool:
        return bool(self._upload_id)

    async def _begin(self) -> None:
        if not self._upload_id:
            self._upload_id = await self._uploads.create_upload(self._path, stamp=self._stamp)

    async def _send(self, number: int, data: bytes) -> UploadPart:
        return await self._uploads.put_part(self._path, self._upload_id, number, data)

    async def _made_of_parts(self) -> str | None:
        return await finish_upload(
            self._store, self._path, self._upload_id, self._parts, stamp=self._stamp, size=self._size, exclusive=True
        )
