"""A relay before the NameNode that cuts connections, before a call arrives or before its answer does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

Cut = Literal["before", "after"]
_CHUNK = 1 << 16


class Relay:
    """One that runs.

    Attributes:
        authority: Its host and port.
        method: The call, by the name that it has on the wire, whose connection is cut.
        cut: Before it arrives, or when it was done.
        times: How often; every time where it is negative.
        skip: How many to let pass before.
        cuts: How often it was.
    """

    def __init__(self, to: str) -> None:
        host, _, port = to.partition(":")
        self._to = host, int(port)
        self.authority = ""
        self.method = b""
        self.cut: Cut = "after"
        self.times = 0
        self.skip = 0
        self.cuts = 0

    def lose(self, method: str, cut: Cut, *, times: int = 1, skip: int = 0) -> None:
        """From now on."""
        self.method, self.cut, self.times, self.skip = method.encode(), cut, times, skip

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one connection on, both ways, until either end is closed or it is cut."""
        answers, requests = await asyncio.open_connection(*self._to)
        losing = asyncio.Event()

        async def forward() -> None:
            while data := await reader.read(_CHUNK):
                if self._is_hit(data):
                    if self.cut == "before":
                        return
                    losing.set()
                requests.write(data)
                await requests.drain()

        async def back() -> None:
            while data := await answers.read(_CHUNK):
                if losing.is_set():
                    return
                writer.write(data)
                await writer.drain()

        ways = [asyncio.ensure_future(way()) for way in (forward, back)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, requests):
                end.transport.abort()

    def _is_hit(self, data: bytes) -> bool:
        if not self.method or self.method not in data or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        self.cuts += 1
        return True


@asynccontextmanager
async def relay_to(authority: str) -> AsyncIterator[Relay]:
    """Serves one while the block runs."""
    relay = Relay(authority)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    relay.authority = f"{host}:{port}"
    try:
        yield relay
    finally:
        # Connections of a client that lives on stay open, and `wait_closed` would wait for them.
        server.close()
