"""Google's client as these tests use it: no retries, so that each call's own answer is seen, and off the event loop."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import pytest
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import AnonymousCredentials
from google.cloud.storage import Bucket, Client
from google.oauth2.credentials import Credentials
from yarl import URL

from committer_testing.emulators.gcs import GcsEmulator

T = TypeVar("T")


def google_client(emulator: GcsEmulator, token: str | None = None) -> Client:
    """A client; anonymous unless it has a token."""
    credentials = AnonymousCredentials() if token is None else Credentials(token)
    return Client(project="p", credentials=credentials, client_options={"api_endpoint": emulator.url})


async def off_loop(call: Callable[[], T]) -> T:
    """Runs a call of the client, which blocks."""
    return await asyncio.to_thread(call)


async def written(bucket: Bucket, name: str, data: bytes = b"data", **metadata: str) -> int:
    """Makes an object; its generation."""

    def write() -> int:
        blob = bucket.blob(name)
        blob.metadata = metadata or None
        blob.upload_from_string(data, retry=None)
        return int(blob.generation)

    return await off_loop(write)


async def held(bucket: Bucket, name: str) -> bytes:
    """What an object holds."""
    return await off_loop(lambda: bytes(bucket.blob(name).download_as_bytes(retry=None)))


async def names(bucket: Bucket, **options: Any) -> list[str]:
    """What a listing gives, in its order."""
    return await off_loop(lambda: [blob.name for blob in bucket.list_blobs(retry=None, **options)])


@contextmanager
def refused(status: int, reason: str | None = None) -> Iterator[None]:
    """The service's refusal: its status and reason as Google's client reads them."""
    with pytest.raises(GoogleAPICallError) as caught:
        yield
    assert caught.value.code == status
    if reason is not None:
        # Where it speaks of an upload, the client leaves the reasons in the answer.
        assert [one["reason"] for one in caught.value.response.json()["error"]["errors"]] == [reason]


@dataclass(frozen=True)
class Reply:
    """An answer as it is on the wire."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """Of a refusal, whose form it checks."""
        error = self.json["error"]
        assert error["code"] == self.status
        assert error["message"] == error["errors"][0]["message"]
        assert error["errors"][0]["domain"] == "global"
        return str(error["errors"][0]["reason"])


class Wire:
    """Calls that Google's client cannot make."""

    def __init__(self, emulator: GcsEmulator, session: aiohttp.ClientSession) -> None:
        self._emulator = emulator
        self._session = session

    async def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One request; a body that is no bytes is sent as JSON."""
        url = URL(path if path.startswith("http") else self._emulator.url + path, encoded=True)
        sent = {"Content-Type": "application/json", **(headers or {})}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        # As aiohttp wants a body of some length.
        data = None if data is None else io.BytesIO(data)
        async with self._session.request(method, url, data=data, headers=sent, allow_redirects=False) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def insert(self, name: str, data: bytes = b"data", more: str = "", **headers: str) -> Reply:
        """Makes an object in the bucket `data`; `name` is encoded already."""
        plain = {"Content-Type": "text/plain", **{key.replace("_", "-"): value for key, value in headers.items()}}
        return await self("POST", f"/upload/storage/v1/b/data/o?uploadType=media&name={name}{more}", data, plain)
