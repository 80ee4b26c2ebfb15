"""What publishing one file on Google Cloud Storage costs the client: this store beside aiohttp alone.

    uv run --extra gcs python -m benchmarks.gcs_move [--moves 4000] [--concurrency 64] [--rounds 3] [--json FILE]

Moves of empty objects on the emulator, which runs in a process of its own and is reached by plain HTTP. "aiohttp alone"
sends the same requests over a session of its own and reads the answers: no client that is built on it can take less.
They take turns in each round. What counts is CPU time of this process a move: the rate is the emulator's as much as the
client's.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from benchmarks.client_cpu import GCS_MOVE, command_line, each, in_turns, timed
from committer.paths import StorePath
from committer.stores.base import FileStatus
from committer.stores.gcs import GcsStore
from tests.stores.gcs_process import RemoteBucket, bucket_process

ROOT = StorePath("gs", "data", "/bench")

ALONE, MOVE, LOOK_AND_MOVE = "aiohttp alone", "store, one request", "store, a look and a move"
CASES = tuple(
    (f"{name}, {loop}", name, loop == "uvloop")
    for name in (ALONE, MOVE, LOOK_AND_MOVE)
    for loop in ("uvloop", "asyncio")
)


async def measure(bucket: RemoteBucket, moves: int, concurrency: int, name: str, turn: int) -> dict[str, float]:
    """CPU and wall time of so many moves."""
    store = GcsStore.open_for(ROOT, {"endpoint": bucket.url})
    source, target = ROOT / f"from-{turn}/year=2026", ROOT / f"to-{turn}/year=2026"
    made: dict[int, FileStatus] = {}

    async def create(number: int) -> None:
        made[number] = await store.put(source / f"part-{number:05}", b"")

    await each(moves, concurrency, create)
    try:
        if name == ALONE:
            return await _alone(bucket.url, made, concurrency, source, target)

        async def move(number: int) -> None:
            part, status = f"part-{number:05}", made[number]
            if name == LOOK_AND_MOVE:
                await store.rename_file(source / part, target / part, identity=status.identity)
            else:
                await store.rename_file(source / part, target / part, identity=status.identity, version=status.version)

        return await timed(moves, concurrency, move)
    finally:
        await store.close()


async def _alone(
    url: str, made: Mapping[int, FileStatus], concurrency: int, source: StorePath, target: StorePath
) -> dict[str, float]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        objects = f"{url}/storage/v1/b/data/o"
        above, below = quote(f"{source.path[1:]}/", safe=""), quote(f"{target.path[1:]}/", safe="")

        async def move(number: int) -> None:
            part = f"part-{number:05}"
            conditions = f"ifGenerationMatch=0&ifSourceGenerationMatch={made[number].version}"
            place = f"{objects}/{above}{part}/moveTo/o/{below}{part}?{conditions}&fields=generation"
            async with session.post(URL(place, encoded=True)) as answer:
                assert answer.status == 200
                await answer.read()

        return await timed(len(made), concurrency, move)


def run(moves: int, concurrency: int, rounds: int) -> dict[str, dict[str, float]]:
    """Every case in turn, so many times; the medians."""
    with bucket_process() as bucket:

        def measured(name: str) -> Callable[[int], Coroutine[Any, Any, dict[str, float]]]:
            return partial(measure, bucket, moves, concurrency, name)

        return in_turns([(title, fast, measured(name)) for title, name, fast in CASES], rounds)


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    command_line(run, arguments, name=GCS_MOVE, what="move", count=4000, concurrency=64, description=__doc__)


if __name__ == "__main__":
    main()
