"""fake-gcs-server, another people's emulator of Google Cloud Storage, in a process of its own; and the way to its files.

A Go program: `go install github.com/fsouza/fake-gcs-server@v1.56.1` builds it. It is looked for in `PATH`, and where
`COMMITTER_FAKE_GCS_SERVER` says.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode

from committer.paths import StorePath
from tests.free_ports import free_port

PROGRAM: Final = os.environ.get("COMMITTER_FAKE_GCS_SERVER") or shutil.which("fake-gcs-server")
NOT_HERE: Final = "fake-gcs-server is not here: go install github.com/fsouza/fake-gcs-server@v1.56.1"
BUCKET: Final = "data"
_UP_S: Final = 30.0


@contextmanager
def fake_gcs_server() -> Iterator[str]:
    """Starts one with an empty bucket; its URL. It is dead when the block ends."""
    assert PROGRAM is not None
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    place = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    process = subprocess.Popen(
        [PROGRAM, "-backend", "memory", "-external-url", url, *place],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _make_bucket(url, process)
        yield url
    finally:
        process.kill()
        process.wait(_UP_S)


def _make_bucket(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _UP_S
    while True:
        try:
            _call(f"{url}/storage/v1/b", "POST", json.dumps({"name": BUCKET}).encode())
            return
        except (urllib.error.URLError, ConnectionError):
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.05)


class ServerChannel:
    """The files below a directory, past any store."""

    def __init__(self, url: str, root: StorePath) -> None:
        self._objects = f"{url}/storage/v1/b/{root.authority}/o"
        self._upload = f"{url}/upload/storage/v1/b/{root.authority}/o"
        self._prefix = f"{root.path[1:]}/"

    async def files(self) -> dict[str, bytes]:
        return await asyncio.to_thread(self._files)

    async def directories(self) -> set[str]:
        return set()

    async def write(self, name: str, data: bytes) -> None:
        query = urlencode({"uploadType": "media", "name": self._prefix + name})
        await asyncio.to_thread(_call, f"{self._upload}?{query}", "POST", data)

    def _files(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        asked = {"prefix": self._prefix}
        while True:
            page = json.loads(_call(f"{self._objects}?{urlencode(asked)}"))
            for one in page.get("items", ()):
                if not one["name"].endswith("/"):
                    url = f"{self._objects}/{quote(one['name'], safe='')}?alt=media"
                    found[one["name"].removeprefix(self._prefix)] = _call(url)
            if not page.get("nextPageToken"):
                return found
            asked["pageToken"] = page["nextPageToken"]


def _call(url: str, method: str = "GET", data: bytes | None = None) -> Any:
    headers = {} if data is None else {"Content-Type": "application/json"}
    request = urllib.request.Request(url, method=method, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=_UP_S) as answer:
        return answer.read()
