"""What the conformance tests of uploads share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import pytest

from committer.paths import StorePath
from committer.stores.base import Capabilities, Store
from committer.stores.uploads import UPLOADS, SupportsUploads, UploadPart
from committer.testing._conformance_base import (
    STAMP,
    ConformanceBase,
)

T = TypeVar("T")


class UploadFixtures(ConformanceBase):
    """The store's uploads, and parts for them."""

    @pytest.fixture
    def uploads(self, store: Store, can: Capabilities) -> SupportsUploads | None:
        """The store where it has uploads; None elsewhere."""
        if not can.multipart:
            return None
        return UPLOADS.required(store, "create_upload")

    @pytest.fixture
    def contents(self, can: Capabilities) -> list[bytes]:
        """Three parts that may follow one another; the last is short."""
        length = max(can.min_part_bytes, 3)
        return [b"a" * length, b"b" * length, b"c"]


async def begin(
    uploads: SupportsUploads, path: StorePath, contents: Sequence[bytes], *, stamp: str = STAMP
) -> tuple[str, list[UploadPart]]:
    """Creates an upload and sends its parts; leaves it pending."""
    upload_id = await uploads.create_upload(path, stamp=stamp)
    return upload_id, [await uploads.put_part(path, upload_id, number, data) for number, data in enumerate(contents, 1)]


async def upload(uploads: SupportsUploads, path: StorePath, contents: Sequence[bytes], *, stamp: str) -> str:
    """Uploads a file whole; gives the id that its upload had."""
    upload_id, parts = await begin(uploads, path, contents, stamp=stamp)
    await uploads.complete_upload(path, upload_id, parts)
    return upload_id


async def drained(entries: AsyncIterator[T]) -> list[T]:
    """Everything that an iterator gives."""
    return [entry async for entry in entries]
