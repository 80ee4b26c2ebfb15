"""Shared parts of the emulators' HTTP servers and processes."""

from __future__ import annotations

import asyncio
import signal
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate

from aiohttp import web

from committer_testing.emulators.faults import Fault

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpClock:
    """Gives the time as HTTP writes it, made once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def now(self) -> str:
        """The time, as in a Date header."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._text = formatdate(second, usegmt=True)
        return self._text


def split_target(target: str) -> tuple[str, str]:
    """The path and the query of a request's target, both still encoded; absolute URLs are taken, too."""
    if not target.startswith("/"):
        _, _, rest = target.partition("://")
        target = "/" + rest.partition("/")[2]
    path, _, query = target.partition("?")
    return path, query


async def read_body(wire: web.BaseRequest) -> bytes:
    """All of a request's body; tells a client that waits for leave to send it to go on."""
    if wire.headers.get("Expect", "").lower() == "100-continue":
        await wire.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # The interim line is no part of the answer's size.
        wire.writer.output_size = 0
    return await wire.content.read() if wire.can_read_body else b""


async def wait_after(faults: list[Fault]) -> None:
    """Waits as long as the faults between effect and answer say."""
    for fault in faults:
        if fault.kind == "latency-after":
            await asyncio.sleep(fault.seconds)


@asynccontextmanager
async def listening(
    handler: Handler, port: int, ssl_context: ssl.SSLContext | None, *, auto_decompress: bool = True
) -> AsyncIterator[str]:
    """Serves on 127.0.0.1 while the block runs; scheme, address and port.

    Args:
        handler: Answers each request.
        port: Where; 0 picks a free one.
        ssl_context: Serves TLS with it.
        auto_decompress: Whether bodies with a Content-Encoding reach the handler unpacked.

    Raises:
        OSError: The port is taken.
    """
    server = web.Server(handler, access_log=None, auto_decompress=auto_decompress)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=ssl_context, backlog=1024)
        await site.start()
        scheme = "http" if ssl_context is None else "https"
        yield f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        served = list(server.connections)
        await runner.cleanup()
        # The clean-up overlooks a connection that was accepted in this very round of the loop, and lets one live whose
        # client does not read what is left for it.
        await asyncio.sleep(0)
        for connection in (*served, *server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        # Sockets are closed in the loop's next round.
        await asyncio.sleep(0)


async def told_to_stop() -> None:
    """Waits for SIGTERM or SIGINT; to be called in the main thread."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()


def tls_context(certificate: str | None, private_key: str | None) -> ssl.SSLContext | None:
    """What serves TLS with these PEM files; None without a certificate.

    Raises:
        OSError: They cannot be read or make no sense.
    """
    if certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, private_key)
    return context
