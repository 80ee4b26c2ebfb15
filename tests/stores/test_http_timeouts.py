"""How long a request may take: each part of the wait has a limit, and only a longer body has one for all."""

from __future__ import annotations

import asyncio
import time

import aiohttp
import pytest

from committer.errors import StoreError, StoreOutcomeUnknownError, StoreUnavailableError
from committer.paths import StorePath
from committer.stores import http
from committer.stores.http import AnswerWatch, HttpClient

# In real time: a server that pauses, and limits that are over. A machine that is busy for half a second fails them.
pytestmark = [pytest.mark.every_loop, pytest.mark.slow]

PATH = StorePath("s3", "bucket", "/d/file")
CONNECT_S, ANSWER_S = 0.4, 0.7


async def answering(each_s: float, blanks: int, *, silent: bool = False, part: bytes = b" ") -> asyncio.Server:
    """A server that begins its answer and then says blanks, as S3 does; without any it only reads.

    Args:
        each_s: Seconds before each blank.
        blanks: How many.
        silent: Whether nothing follows them, where more was promised.
        part: What is said instead of a blank.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            if not blanks:
                while await reader.read(1 << 16):
                    pass
                return
            writer.write(b"HTTP/1.1 503 Slow Down\r\nContent-Length: %d\r\n\r\n" % (blanks * len(part) + silent))
            for _ in range(blanks):
                await asyncio.sleep(each_s)
                writer.write(part)
                await writer.drain()
            while silent and await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def took(server: asyncio.Server, size: int, *, changes: bool = True) -> tuple[float, int | type[BaseException]]:
    """How long a put of so many bytes took, or a read, and the status or the error that it ended with."""
    client = HttpClient(connect_s=CONNECT_S, answer_s=ANSWER_S)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    began = time.monotonic()
    try:
        method, data = ("PUT", b"x" * size) if changes else ("GET", None)
        answer = await client.send(method, url, {}, operation="call", path=PATH, changes=changes, data=data)
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
    assert [end for _took, end in ends] == [503, StoreOutcomeUnknownError, 503]
    assert ends[0][0] > total_s
    assert ends[2][0] > total_s
    assert ends[1][0] == pytest.approx(total_s, abs=0.5)


@pytest.mark.parametrize("more", [0, 1, 1 << 20], ids=["short", "longer", "long"])
async def test_a_server_that_goes_silent_is_not_waited_for(more: int) -> None:
    async with await answering(0.0, 0) as server:
        seconds, end = await took(server, http._SHORT_BODY_BYTES + more)
    assert end is StoreOutcomeUnknownError
    assert seconds < CONNECT_S + ANSWER_S + 1.5


async def test_an_answer_that_stops_in_its_middle_is_not_waited_for() -> None:
    async with await answering(0.01, 5, silent=True) as server:
        seconds, end = await took(server, 0)
    assert end is StoreOutcomeUnknownError
    assert ANSWER_S < seconds < ANSWER_S + 1.0


async def test_a_client_that_is_closed_still_watches_requests_of_a_session_that_was_given() -> None:
    async with await answering(0.0, 0) as server, aiohttp.ClientSession() as session:
        client = HttpClient(session=session, connect_s=CONNECT_S, answer_s=ANSWER_S)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
        task = asyncio.create_task(client.send("PUT", url, {}, operation="put", path=PATH, changes=True, data=b"x"))
        await asyncio.sleep(0.1)
        await client.close()
        async with asyncio.timeout(30):
            with pytest.raises(StoreOutcomeUnknownError):
                await task


async def test_who_is_cancelled_is_not_told_of_a_lost_answer() -> None:
    async with await answering(0.0, 0) as server:
        task = asyncio.create_task(took(server, 0))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_process_that_stood_still_gives_no_answer_up() -> None:
    """Bytes that came meanwhile are not taken yet when the process goes on: limits count looks, not seconds."""
    async with await answering(ANSWER_S / 7, 10) as server:
        task = asyncio.create_task(took(server, 0))
        await asyncio.sleep(ANSWER_S / 2)
        time.sleep(CONNECT_S + 2 * ANSWER_S)
        assert (await task)[1] == 503


@pytest.mark.parametrize("changes", [False, True], ids=["read", "change"])
async def test_no_answer_is_waited_for_without_end(changes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_LONGEST", 3)
    async with await answering(0.05, 200, part=b" " * 1000) as server:
        seconds, end = await took(server, 0, changes=changes)
        assert end is (StoreOutcomeUnknownError if changes else StoreUnavailableError)
    assert 3 * ANSWER_S < seconds < 4 * ANSWER_S


async def test_one_timer_watches_all_requests() -> None:
    watch = AnswerWatch(1.0, 1.0)
    with watch.request(), watch.request():
        timer = watch._timer
        with watch.request():
            assert watch._timer is timer
    assert timer is not None
    watch._look()
    # With none under way it looks no more.
    assert watch._timer is None
    timer.cancel()
