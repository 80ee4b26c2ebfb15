"""What of one request's CPU is aiohttp's, and what the stores, their limits and counts add to it.

    uv run --extra adls --extra s3 python -m benchmarks.http_split [--slices 150] [--calls 200] [--json FILE]

A rename on Azure Data Lake Storage by account key, and a completion of an upload on S3, over plain HTTP, 64 at once,
against a process that answers at once (`benchmarks/quick_server.py`). All sides live in one process and take turns,
slice by slice; what is kept of each slice is its CPU in relation to that of aiohttp alone in the same round. So what
else the machine does meets all alike. "aiohttp alone" sends the same requests, signed once, over a session with
aiohttp's defaults. The next side gives it the deadlines and headers that the stores need: no header of its own, no
redirect, no second sending, and a limit of time for the connection in place of one for the whole request. (The limit
for the answer is the client's, on the next side.)
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp
from yarl import URL

from benchmarks.client_cpu import HTTP_SPLIT, each, split_rows
from benchmarks.kept import aligned, keep, machine
from benchmarks.quick_server import ETAG, quick_server
from committer.events import Statistics
from committer.flow.pacing import Pacer
from committer.paths import StorePath
from committer.stores.adls import AdlsStore
from committer.stores.base import Store
from committer.stores.http import HttpClient
from committer.stores.paced import PacedStore
from committer.stores.s3 import S3Store
from committer.stores.uploads import UploadPart
from committer_testing.emulators.adls import DEFAULT_KEY

ALONE, BOUND, CLIENT, STORE, PACED = SIDES = (
    "aiohttp alone",
    "the same, with the stores' deadlines and headers",
    "the stores' HTTP client",
    "the store",
    "the store, paced and counted",
)
CONCURRENCY: Final = 64
_MANY: Final = 1_000_000
# As long as such names are. No two requests are for one name: what aiohttp remembers of a URL helps in no job.
_NAME: Final = "part-{:07}-1b0a7c43-9d2f.c000.snappy.parquet"
_UPLOAD: Final = "VXBsb2FkIElEIGZvciA2aWWpbmcncyBteS1tb3ZpZS5tMnRzIHVwbG9hZA"

Call: TypeAlias = Callable[[int], Awaitable[object]]
Request: TypeAlias = tuple[str, str, dict[str, str], bytes | None]
"""Method, URL, headers, body."""


class _Recorder(HttpClient):
    """Keeps what a store sends, and answers nothing: what the sides without a store send again."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: Request = "", "", {}, None

    async def send(self, method: str, url: str, headers: Mapping[str, str], **given: Any) -> Any:
        self.sent = method, url, dict(headers), given["data"]
        raise InterruptedError


def _adls(port: int) -> tuple[Store, Callable[[Store], Call]]:
    root = StorePath("abfss", "data@devstoreaccount1.dfs.core.windows.net", "/bench")
    options = {"endpoint": f"http://127.0.0.1:{port}/devstoreaccount1", "account_key": DEFAULT_KEY}
    source = root / "_temporary/manifest_0/00/tasks/attempt_0_0000_m_000000_0/year=2026"

    target = root / "year=2026"

    def call(store: Store) -> Call:
        def rename(number: int) -> Awaitable[object]:
            name = _NAME.format(number)
            return store.rename_file(source / name, target / name, identity=ETAG)

        return rename

    return AdlsStore.open_for(root, options), call


def _s3(port: int) -> tuple[Store, Callable[[Store], Call]]:
    root = StorePath("s3", "bucket", "/bench")
    options = {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "region": "us-east-1",
        "access_key_id": "AKIDTEST",
        "secret_access_key": "a-key",
    }
    parts = [UploadPart(1, ETAG, 1000)]

    target = root / "year=2026"

    def call(store: Any) -> Call:
        return lambda number: store.complete_upload(target / _NAME.format(number), _UPLOAD, parts, exclusive=True)

    return S3Store.open_for(root, options), call


SERVICES: Final[Mapping[str, tuple[str, Callable[[int], tuple[Store, Callable[[Store], Call]]]]]] = {
    "adls": ("rename on ADLS", _adls),
    "s3": ("completion on S3", _s3),
}


async def _recorded(store: Any, call: Call) -> Request:
    wire = store._wire
    real, wire._http = wire._http, _Recorder()
    try:
        await call(0)
    except InterruptedError:
        return wire._http.sent  # type: ignore[no-any-return]
    finally:
        wire._http = real
    raise AssertionError("nothing was sent")


def _alone(session: aiohttp.ClientSession, sent: Request, **options: Any) -> Call:
    method, url, headers, data = sent
    first = _NAME.format(0)

    async def call(number: int) -> None:
        place = url.replace(first, _NAME.format(number))
        answer = await session.request(method, URL(place, encoded=True), headers=dict(headers), data=data, **options)
        assert answer.status < 300
        await answer.read()

    return call


async def measure(service: str, port: int, slices: int, calls: int) -> dict[str, dict[str, float]]:
    """CPU of a request of each side, in turns: microseconds, and in relation to aiohttp alone."""
    store, made = SERVICES[service][1](port)
    sent = await _recorded(store, made(store))
    client: HttpClient = store._http  # type: ignore[attr-defined]
    pacer = Pacer("bench", concurrency=_MANY, rate=float(_MANY), burst=_MANY)
    paced = PacedStore(store, pacer=pacer, statistics=Statistics())
    method, url, headers, data = sent
    path = StorePath("s3", "bucket", "/bench")

    async def by_client(number: int) -> None:
        place = url.replace(_NAME.format(0), _NAME.format(number))
        await client.send(method, place, dict(headers), operation="bench", path=path, changes=True, data=data)

    kept: dict[str, list[float]] = {side: [] for side in SIDES}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        own = client._opened(asyncio.get_running_loop()).session
        bound = {"allow_redirects": False, "middlewares": (_as_sent,)}
        sides: dict[str, Call] = {
            ALONE: _alone(session, sent, **({"skip_auto_headers": ["Content-Type"]} if data is None else {})),
            BOUND: _alone(own, sent, **bound),
            CLIENT: by_client,
            STORE: made(store),
            PACED: made(paced),
        }
        numbers = itertools.count(1)
        for turn in range(slices + 1):
            for side, call in sides.items():
                cpu = time.process_time()
                await each(calls, CONCURRENCY, lambda _number, call=call: call(next(numbers)))
                if turn:
                    kept[side].append((time.process_time() - cpu) / calls * 1e6)
    await store.close()
    return {
        side: {
            "cpu_us": statistics.median(found),
            "least_us": min(found),
            "ratio": statistics.median(one / other for one, other in zip(found, kept[ALONE], strict=True)),
        }
        for side, found in kept.items()
    }


async def _as_sent(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    return await handler(request)


def run(slices: int, calls: int) -> dict[str, dict[str, dict[str, float]]]:
    """Every service, on both loops."""
    import uvloop

    found = {}
    for service, (title, _) in SERVICES.items():
        # Nothing stands behind it: all that is sent is answered at once.
        with quick_server(service, 1) as port:
            for loop, factory in (("asyncio", None), ("uvloop", uvloop.new_event_loop)):
                with asyncio.Runner(loop_factory=factory) as runner:
                    found[f"{title}, {loop}"] = runner.run(measure(service, port, slices, calls))
    return found


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=150, help="turns of each side")
    parser.add_argument("--calls", type=int, default=200, help="requests in a slice")
    parser.add_argument("--json", type=Path, help="writes the figures there, not into benchmarks/results")
    given = parser.parse_args(arguments)
    about = machine()
    kept = {"machine": about, "slices": given.slices, "calls": given.calls, "splits": run(given.slices, given.calls)}
    print(aligned(split_rows(kept)))
    keep(HTTP_SPLIT, kept, file=given.json)


if __name__ == "__main__":
    main()
