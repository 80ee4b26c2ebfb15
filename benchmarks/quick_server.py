"""A service that answers at once what is asked for every file, and passes all else on to a server that does the work.

    python -m benchmarks.quick_server adls|s3 PORT

PORT is that of the server behind it, on 127.0.0.1. The only line it prints is its own port. On Azure Data Lake Storage
it answers renames out of a job's `tasks/`, and looks there; on S3 completions of uploads, and looks at their parts. It
does nothing for them: what is left of a request's time is the client's. Records, decisions and directories are those of
the server behind it.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from subprocess import PIPE, Popen
from typing import Final, cast

ETAG: Final = "0x8DEADBEEF"
LENGTH: Final = 1000
"""Of every file that is said to be there."""

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_DATE: Final = formatdate(usegmt=True)


def _answer(status: str, body: str = "", *headers: str, length: int | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Date: {_DATE}", f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, *headers, "", body]).encode()


_XML: Final = '<?xml version="1.0" encoding="UTF-8"?>\n'
_RENAMED: Final = _answer("201 Created", "", f'ETag: "{ETAG}"', "x-ms-version: 2023-08-03")
_FILE: Final = _answer(
    "200 OK", "", f'ETag: "{ETAG}"', "x-ms-resource-type: file", f"Last-Modified: {_DATE}", length=LENGTH
)
_COMPLETED: Final = _answer(
    "200 OK",
    f"{_XML}<CompleteMultipartUploadResult><ETag>&quot;{ETAG}&quot;</ETag></CompleteMultipartUploadResult>",
    "Content-Type: application/xml",
)
_PARTS: Final = _answer(
    "200 OK",
    f"{_XML}<ListPartsResult><IsTruncated>false</IsTruncated><Part><PartNumber>1</PartNumber>"
    f"<ETag>&quot;{ETAG}&quot;</ETag><Size>{LENGTH}</Size></Part></ListPartsResult>",
    "Content-Type: application/xml",
)


def adls(head: bytes) -> bytes | None:
    """The answer to a request on Azure Data Lake Storage that begins so; None where it is passed on."""
    if head.startswith(b"PUT "):
        at = head.find(b"x-ms-rename-source: ")
        if at >= 0 and b"/tasks/" in head[at : head.find(b"\r\n", at)]:
            return _RENAMED
    elif head.startswith(b"HEAD ") and b"/tasks/" in head[: head.find(b" HTTP/")]:
        return _FILE
    return None


def s3(head: bytes) -> bytes | None:
    """The same on S3."""
    line = head[: head.find(b" HTTP/")]
    if b"?uploadId=" not in line or b"/_temporary/" in line:
        # (Those are the engine's trials, which the server behind has to pass.)
        return None
    if line.startswith(b"POST "):
        return _COMPLETED
    return _PARTS if line.startswith(b"GET ") else None


SERVICES: Final[dict[str, Callable[[bytes], bytes | None]]] = {"adls": adls, "s3": s3}


class _Behind(asyncio.Protocol):
    """The connection to the server behind."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.close()


class Front(asyncio.Protocol):
    """One connection of a client that sends one request after the other, each when the last is answered."""

    def __init__(self, answer: Callable[[bytes], bytes | None], port: int) -> None:
        self._answer = answer
        self._port = port
        self._held = b""
        self._left = 0
        self._ignored = False
        self._held_back = b""
        self._behind: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._body(data)
            return
        self._held += data
        end = self._held.find(_HEAD_END)
        if end < 0:
            return
        request, self._held = self._held, b""
        end += len(_HEAD_END)
        head = request[:end]
        length = _LENGTH.search(head)
        self._left = int(length[1]) if length is not None else 0
        found = self._answer(head)
        self._ignored = found is not None
        if found is None:
            self._pass_on(head)
        self._body(request[end:])
        if found is not None:
            # The body, if any, comes with the head or right after: it is read past.
            self._client.write(found)

    def connection_lost(self, error: Exception | None) -> None:
        if self._behind is not None:
            self._behind.close()

    def _body(self, data: bytes) -> None:
        if not data:
            return
        self._left -= len(data)
        if not self._ignored:
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self._behind is not None:
            self._behind.write(data)
            return
        self._held_back += data
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: _Behind(self._client), "127.0.0.1", self._port)
        self._behind = transport
        transport.write(self._held_back)
        self._held_back = b""


@contextmanager
def quick_server(service: str, port: int) -> Iterator[int]:
    """Its port, while the block runs; `port` is that of the server behind it."""
    command = [sys.executable, "-m", "benchmarks.quick_server", service, str(port)]
    with Popen(command, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def _serve(service: str, port: int) -> None:
    answer = SERVICES[service]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Front(answer, port), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    import uvloop

    _, service, port = sys.argv
    uvloop.run(_serve(service, int(port)))


if __name__ == "__main__":
    main()
