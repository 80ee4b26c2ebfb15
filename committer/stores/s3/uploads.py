"""Headers of requests that make objects, and the writer that sends parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.http import Body
from committer.stores.s3.options import S3Options
from committer.stores.s3.wire import STAMP_HEADER
from committer.stores.s3.xml import checksum, header_of
from committer.stores.sending_writer import PartsWriter, PutFile
from committer.stores.upload_ends import finish_upload
from committer.stores.uploads import UPLOADS, UploadPart

_LONG_BODY_BYTES: Final = 256 << 10


class Objects:
    """Headers of requests that make objects; `exclusive` is the one of a request that must replace nothing."""

    def __init__(self, options: S3Options) -> None:
        self.algorithm: str | None = options.checksum_algorithm
        # Alibaba Cloud's page "PutObject"; OSS answers 501 to If-None-Match.
        of_oss = options.service == "oss"
        self.exclusive: Mapping[str, str] = {"x-oss-forbid-overwrite": "true"} if of_oss else {"if-none-match": "*"}
        self._encryption: dict[str, str] = {}
        if options.server_side_encryption is not None:
            self._encryption["x-amz-server-side-encryption"] = options.server_side_encryption
        if options.kms_key_id is not None:
            self._encryption["x-amz-server-side-encryption-aws-kms-key-id"] = options.kms_key_id
        # Only for files that tasks write: records are read again at once, which archive classes do not allow.
        self._class: dict[str, str] = {}
        if options.storage_class is not None:
            self._class["x-amz-storage-class"] = options.storage_class

    def begun(self, stamp: str) -> dict[str, str]:
        """Returns the headers of "CreateMultipartUpload", the only call of an upload that takes these."""
        headers = {**self._encryption, **self._class, STAMP_HEADER: stamp, "content-type": "application/octet-stream"}
        if self.algorithm is not None:
            headers["x-amz-checksum-algorithm"] = self.algorithm
        return headers

    async def headers_with(self, data: Body, *, stamp: str | None = None, stored: bool = True) -> dict[str, str]:
        """Returns the headers of "PutObject"; `stored` for files that tasks write, False for records."""
        headers = {"content-type": "application/octet-stream", **self._encryption, **await self.proof(data)}
        if stored:
            headers |= self._class
        if stamp is not None:
            headers[STAMP_HEADER] = stamp
        return headers

    async def proof(self, data: Body) -> dict[str, str]:
        """Returns the checksum header of a body, if an algorithm is set."""
        algorithm = self.algorithm
        if algorithm is None:
            return {}
        if len(data) < _LONG_BODY_BYTES:
            return {header_of(algorithm): checksum(algorithm, data)}
        return {header_of(algorithm): await current_runtime().run_blocking(lambda: checksum(algorithm, data))}


class S3Writer(PartsWriter[UploadPart]):
    """Writer that sends the parts of an upload and completes it."""

    # S3 takes 10,000 parts.
    parts_of_one_length = 1000

    def __init__(self, store: Store, path: StorePath, put_file: PutFile) -> None:
        super().__init__(path, f"writer-{current_runtime().nonce(8)}", put_file)
        self._store = store
        self._uploads = UPLOADS.required(store, "open_writer", path)
        self._upload_id = ""

    async def _abandon(self) -> None:
        if self._upload_id:
            await self._uploads.abort_upload(self._path, self._upload_id)

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
