"""How long a request may take: each part of the wait has a limit, and only a longer body has one for all."""

from __future__ import annotations

import asyncio
import time

import pytest

from committer.errors import StoreError, StoreOutcomeUnknownError
from committer.paths import StorePath
from committer.stores import http
from committer.stores.http import HttpClient

# In real time: a server that pauses, and limits that are over. A machine that is busy for half a second fails them.
pytestmark = [pytest.mark.every_loop, pytest.mark.slow]

PATH = StorePath("s3", "bucket", "/d/file")
CONNECT_S, ANSWER_S = 0.4, 0.7


async def answering(each_s: float, lines: int) -> asyncio.Server:
    """A server that says the headers of its answer one after the other; without any it only reads."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            if not lines:
                while await reader.read(1 << 16):
                    pass
                return
            for line in (b"HTTP/1.1 200 OK\r\n", *[b"X-More: 1\r\n"] * lines, b"Content-Length: 0\r\n\r\n"):
                await asyncio.sleep(each_s)
                writer.write(line)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def took(server: asyncio.Server, size: int) -> tuple[float, int | type[BaseException]]:
    """How long a put of so many bytes took, and the status or the error that it ended with."""
    client = HttpClient(connect_s=CONNECT_S, answer_s=ANSWER_S)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    began = time.monotonic()
    try:
        answer = await client.send("PUT", url, {}, operation="put", path=PATH, changes=True, data=b"x" * size)
        return time.monotonic() - began, answer.status
    except StoreError as error:
        return time.monotonic() - began, type(error)
    finally:
        await client.close()


async def test_a_short_body_has_no_limit_but_for_each_part_of_the_wait() -> None:
    """No timer is made for it; a longer one must be over when the slowest line that is waited for had sent it."""
    short, long = http._SHORT_BODY_BYTES, http._SHORT_BODY_BYTES + 1
    total_s = CONNECT_S + ANSWER_S + 1
    # Never as long as one part may take, and longer than all that a long body may take.
    async with await answering(ANSWER_S / 7, 30) as server:
        ends = await asyncio.gather(took(server, short), took(server, long), took(server, 0))
    assert [end for _took, end in ends] == [200, StoreOutcomeUnknownError, 200]
    assert ends[0][0] > total_s
    assert ends[2][0] > total_s
    assert ends[1][0] == pytest.approx(total_s, abs=0.5)


@pytest.mark.parametrize("more", [0, 1, 1 << 20], ids=["short", "longer", "long"])
async def test_a_server_that_goes_silent_is_not_waited_for(more: int) -> None:
    async with await answering(0.0, 0) as server:
        seconds, end = await took(server, http._SHORT_BODY_BYTES + more)
    assert end is StoreOutcomeUnknownError
    assert seconds < CONNECT_S + ANSWER_S + 1.5
