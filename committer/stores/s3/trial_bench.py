"""Where trials of a service that speaks like S3 are made."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from committer.errors import StoreError
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.s3.listing import STAMP_HEADER
from committer.stores.s3.wire import S3Wire
from committer.stores.s3.xml import element_in
from committer.stores.uploads import UPLOADS, SupportsUploads

STAMP: Final = "committer-trial"
NO_ETAG: Final = '"00000000000000000000000000000000"'
"""As a header has it, of no file."""


class TrialBench:
    """One service, and a directory that the caller removes.

    Args:
        store: The store.
        wire: Its requests.
        directory: Where; nothing is there.
    """

    def __init__(self, store: Store, wire: S3Wire, directory: StorePath) -> None:
        self.store = store
        self.wire = wire
        self.directory = directory
        self.uploads: SupportsUploads = UPLOADS.required(store, "trials", directory)
        self._begun: list[tuple[StorePath, str]] = []

    async def begin(self, path: StorePath, headers: dict[str, str] | None = None) -> str:
        """Begins an upload, stamped, that is ended with the trials."""
        sent = {STAMP_HEADER: STAMP, **(headers or {})}
        answer = await self.wire.done("trials", "POST", path, (("uploads", ""),), sent)
        upload_id = element_in(answer.body, "UploadId")
        self._begun.append((path, upload_id))
        return upload_id

    async def end(self) -> None:
        """Ends every upload that was begun."""
        for path, upload_id in self._begun:
            with suppress(StoreError):
                await self.uploads.abort_upload(path, upload_id)
