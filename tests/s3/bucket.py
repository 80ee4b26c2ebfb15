"""The way to a bucket's files that does not go through the store, and the options that lead the store there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from committer.paths import StorePath
from tests.s3.servers import BUCKET, Server

KEY_ID_IS_IN = "S3_TEST_KEY_ID"
KEY_IS_IN = "S3_TEST_KEY"

T = TypeVar("T")


def options_for(server: Server, **others: object) -> dict[str, object]:
    return {
        "endpoint_url": server.url,
        "region": "us-east-1",
        "access_key_id": f"env:{KEY_ID_IS_IN}",
        "secret_access_key": f"env:{KEY_IS_IN}",
        **others,
    }


class BucketChannel:
    """The vendor's client, in threads."""

    def __init__(self, client: Any, root: StorePath) -> None:
        self._client = client
        self._prefix = f"{root.path[1:]}/"

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call)

    def _keys(self) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=self._prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    async def files(self) -> dict[str, bytes]:
        def look() -> dict[str, bytes]:
            return {
                key.removeprefix(self._prefix): self._client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
                for key in self._keys()
            }

        return await self._run(look)

    async def directories(self) -> set[str]:
        return set()

    async def write(self, name: str, data: bytes) -> None:
        await self._run(lambda: self._client.put_object(Bucket=BUCKET, Key=self._prefix + name, Body=data))

    async def head(self, name: str) -> dict[str, Any]:
        return await self._run(lambda: dict(self._client.head_object(Bucket=BUCKET, Key=self._prefix + name)))

    async def parts(self, name: str, upload_id: str) -> int:
        """How many parts a pending upload has."""
        found = await self._run(
            lambda: self._client.list_parts(Bucket=BUCKET, Key=self._prefix + name, UploadId=upload_id)
        )
        return len(found.get("Parts", ()))

    async def uploads(self) -> list[tuple[str, str]]:
        """Name and id of every pending upload below the root."""

        def look() -> list[tuple[str, str]]:
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET, Prefix=self._prefix)
            return [
                (upload["Key"].removeprefix(self._prefix), upload["UploadId"])
                for page in pages
                for upload in page.get("Uploads", ())
            ]

        return await self._run(look)
