"""An emulated bucket in a process of its own, as another process meets it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from tests.processes.harness import TIMEOUT_S, serving


class RemoteBucket:
    """A running service with an empty bucket, `data`. Its methods block.

    Args:
        url: Where it serves.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def uri(self, path: str) -> str:
        return f"gs://data/{path}"

    def control(self, method: str, call: str, body: object = None) -> Any:
        """A control call."""
        return self._call(f"_control/{call}", method, None if body is None else json.dumps(body).encode())

    def sizes(self, directory: str) -> dict[str, int]:
        """The length of every object below a directory."""
        found: dict[str, int] = {}
        asked = {"prefix": f"{directory}/", "fields": "items(name,size),nextPageToken"}
        while True:
            page = self._call(f"storage/v1/b/data/o?{urlencode(asked)}")
            found |= {one["name"].removeprefix(f"{directory}/"): int(one["size"]) for one in page.get("items", ())}
            if "nextPageToken" not in page:
                return found
            asked["pageToken"] = page["nextPageToken"]

    def read(self, name: str) -> bytes:
        """What an object holds."""
        url = f"{self.url}/storage/v1/b/data/o/{quote(name, safe='')}?alt=media"
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read())

    def _call(self, path: str, method: str = "GET", data: bytes | None = None) -> Any:
        request = urllib.request.Request(f"{self.url}/{path}", method=method, data=data)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)


@contextmanager
def bucket_process(*arguments: str) -> Iterator[RemoteBucket]:
    """Starts one; it is dead when the block ends."""
    with serving("-m", "committer_testing.emulators.gcs", "--bucket", "data", *arguments) as url:
        yield RemoteBucket(url)
