"""A relay before the NameNode that cuts connections, before a call arrives or once it was done.

It knows as much of the protocol as that takes: what is sent either way are frames with their length before them, which
begin with a header that holds the number of the call (``RpcHeader.proto``, ``ProtobufRpcEngine2.proto``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Literal

Cut = Literal["before", "after"]
# "hrpc", the version, the class of service, how to authenticate.
_PREAMBLE = 7


class Relay:
    """One that runs.

    Attributes:
        authority: Its host and port.
        method: The call, by the name that it has on the wire, whose connection is cut.
        cut: Before it arrives, or when it was done and its answer is on its way.
        times: How often; every time where it is negative.
        skip: How many to let pass before.
        cuts: How often it was.
        calls: All calls that arrived, by their names.
        before: Awaited with the name of each call that arrived, before it goes on; its connection waits.
    """

    def __init__(self, to: str) -> None:
        host, _, port = to.partition(":")
        self._to = host, int(port)
        self.authority = ""
        self.method = ""
        self.cut: Cut = "after"
        self.times = 0
        self.skip = 0
        self.cuts = 0
        self.calls: list[str] = []
        self.before: Callable[[str], Awaitable[None]] | None = None
        self._over = asyncio.Event()
        self._connections = 0

    def lose(self, method: str, cut: Cut, *, times: int = 1, skip: int = 0) -> None:
        """From now on."""
        self.method, self.cut, self.times, self.skip = method, cut, times, skip

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one connection on, both ways, until either end is closed or it is cut."""
        self._connections += 1
        try:
            await self._pass_on(reader, writer)
        finally:
            writer.transport.abort()
            self._connections -= 1

    async def close(self) -> None:
        """Closes what is open: the connections of a client that lives on, too."""
        self._over.set()
        while self._connections:
            await asyncio.sleep(0)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await asyncio.open_connection(*self._to)
        except OSError:
            # As a NameNode that is down: the connection is refused, or as good as.
            return
        losing: set[int] = set()

        async def forward() -> None:
            requests.write(await reader.readexactly(_PREAMBLE))
            while True:
                frame = await _frame(reader)
                number, method = _request(frame)
                self.calls.append(method)
                if self.before is not None:
                    await self.before(method)
                if self._is_hit(method):
                    if self.cut == "before":
                        self.cuts += 1
                        return
                    losing.add(number)
                requests.write(frame)
                await requests.drain()

        async def back() -> None:
            while True:
                frame = await _frame(answers)
                if _answered(frame) in losing:
                    self.cuts += 1
                    return
                writer.write(frame)
                await writer.drain()

        ways: list[asyncio.Task[object]] = [asyncio.create_task(way()) for way in (forward, back, self._over.wait)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            requests.transport.abort()

    def _is_hit(self, method: str) -> bool:
        if method != self.method or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length))


def _request(frame: bytes) -> tuple[int, str]:
    """The number of a call and the name of its method."""
    header, rest = _delimited(frame[4:])
    numbers = [value for field, value in _fields(header) if field == 3]
    assert isinstance(numbers[0], int)
    # Zigzag: the connection's own messages have numbers below zero, and no method.
    number = numbers[0] >> 1 if numbers[0] % 2 == 0 else -(numbers[0] >> 1) - 1
    if number < 0:
        return number, ""
    names = [value for field, value in _fields(_delimited(rest)[0]) if field == 1]
    assert isinstance(names[0], bytes)
    return number, names[0].decode()


def _answered(frame: bytes) -> int:
    """The number of the call that is answered."""
    numbers = [value for field, value in _fields(_delimited(frame[4:])[0]) if field == 1]
    assert isinstance(numbers[0], int)
    return numbers[0]


def _varint(data: bytes) -> tuple[int, bytes]:
    value = shift = 0
    for at, byte in enumerate(data):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data[at + 1 :]
    raise ValueError("a number without end")


def _delimited(data: bytes) -> tuple[bytes, bytes]:
    length, rest = _varint(data)
    return rest[:length], rest[length:]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, which are numbers and texts here."""
    while message:
        key, message = _varint(message)
        value: int | bytes
        if key & 7 == 0:
            value, message = _varint(message)
        else:
            assert key & 7 == 2
            value, message = _delimited(message)
        yield key >> 3, value


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
        server.close()
        await relay.close()
