"""A proxy that answers for a service as it is told: it sends each byte itself, so that no answer is too wrong for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
from yarl import URL

_CONNECTION = frozenset({"transfer-encoding", "connection", "keep-alive"})


@dataclass(frozen=True)
class Told:
    """An answer.

    Attributes:
        status: Its status.
        headers: Names and texts, as they are sent; one that is missing is not added.
        body: What follows the head; nothing is sent of one to HEAD.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status:03} Told", *(f"{name}: {text}" for name, text in self.headers), "", ""]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")

    def with_body(self, body: bytes) -> Told:
        """The same with another body, whose length is told rightly."""
        return replace(self.with_headers({"Content-Length": str(len(body))}), body=body)

    def with_headers(self, others: dict[str, str]) -> Told:
        """The same with other texts of headers, or more headers."""
        names = {name.lower() for name in others}
        kept = [one for one in self.headers if one[0].lower() not in names]
        return replace(self, headers=(*kept, *others.items()))


class HangUpError(Exception):
    """The proxy closes the connection."""


@dataclass
class Exchange:
    """A request that the proxy received, with the ways to answer it.

    Attributes:
        method: Its method.
        target: Path and query, as they came.
        headers: Its headers.
        body: Its body.
        number: How many requests came before it.
    """

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    number: int
    _proxy: HostileProxy
    _writer: asyncio.StreamWriter

    async def forward(self) -> Told:
        """The service's own answer."""
        session, upstream = self._proxy.session, self._proxy.upstream
        async with session.request(
            self.method,
            URL(upstream + self.target, encoded=True),
            headers=self.headers,
            data=self.body or None,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            allow_redirects=False,
        ) as answer:
            body = await answer.read()
            headers = [(name, text) for name, text in answer.headers.items() if name.lower() not in _CONNECTION]
            if self.method != "HEAD":
                headers = [one for one in headers if one[0].lower() != "content-length"]
                headers.append(("Content-Length", str(len(body))))
            return Told(answer.status, tuple(headers), body)

    async def send(self, told: Told) -> None:
        """Answers, and keeps the connection."""
        await self.write(told.head() + (b"" if self.method == "HEAD" else told.body))

    async def write(self, data: bytes) -> None:
        """Sends bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def trickle(self, data: bytes, every_s: float) -> None:
        """Sends bytes one by one."""
        for one in data:
            await self.write(bytes([one]))
            await asyncio.sleep(every_s)

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        """Does something while the proxy goes on."""
        self._proxy.under_way.add(asyncio.create_task(work))


Mode = Callable[[Exchange], Awaitable[None]]


@dataclass
class HostileProxy:
    """A proxy that runs.

    Attributes:
        upstream: Where the service is.
        session: What reaches it.
        url: Where the proxy is.
        mode: How requests are answered that are hit; None for none.
        hits: Which requests are hit, by their number since `meet`.
        under_way: What it does meanwhile.
    """

    upstream: str
    session: aiohttp.ClientSession
    url: str = ""
    mode: Mode | None = None
    hits: Callable[[int], bool] = field(default=lambda _number: True)
    under_way: set[asyncio.Task[object]] = field(default_factory=set)
    _count: int = 0

    def meet(self, mode: Mode | None, hits: Callable[[int], bool] = lambda _number: True) -> None:
        """Answers from now on in a mode."""
        self.mode, self.hits, self._count = mode, hits, 0

    async def settled(self) -> None:
        """Waits until all that it did meanwhile is done."""
        while self.under_way:
            done, self.under_way = self.under_way, set()
            await asyncio.gather(*done, return_exceptions=True)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _version = lines[0].split(" ")
                pairs = [line.partition(": ") for line in lines[1:] if line]
                headers = [(name, text) for name, _colon, text in pairs]
                length = next((int(text) for name, text in headers if name.lower() == "content-length"), 0)
                body = await reader.readexactly(length)
                exchange = Exchange(method, target, headers, body, self._count, self, writer)
                self._count += 1
                if self.mode is None or not self.hits(exchange.number):
                    await exchange.send(await exchange.forward())
                else:
                    await self.mode(exchange)
        except (ConnectionError, asyncio.IncompleteReadError, HangUpError):
            pass
        finally:
            with suppress(ConnectionError):
                writer.close()


@asynccontextmanager
async def hostile_proxy(upstream: str) -> AsyncIterator[HostileProxy]:
    """A proxy on 127.0.0.1, at a port of its own."""
    async with aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)) as session:
        proxy = HostileProxy(upstream, session)
        server = await asyncio.start_server(proxy.connected, "127.0.0.1", 0, limit=1 << 20)
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            server.close()
            await proxy.settled()
