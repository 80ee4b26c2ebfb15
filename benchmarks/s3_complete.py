"""What one completion of an upload costs the client: this store beside aiobotocore, on the same SeaweedFS.

    uv run python -m benchmarks.s3_complete [--completions 2000] [--concurrency 32] [--rounds 3] [--json FILE]
    uv run --with aiobotocore python -m benchmarks.s3_complete         # beside aiobotocore, which pins its own botocore

Uploads of one small part are begun beforehand. What is timed is `complete_upload`, with `If-None-Match: *`, without the
engine, over plain HTTP; of aiobotocore the same call with parameter validation off. They take turns in each round. What
counts is CPU time of this process a completion: the rate is the server's.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from committer.paths import StorePath
from committer.stores.s3 import S3Store
from tests.s3.bucket import KEY_ID_IS_IN, KEY_IS_IN, options_for
from tests.s3.servers import BUCKET, KEY, KEY_ID, Server, seaweedfs

NAME = "s3-complete"
ROOT = StorePath("s3", BUCKET, "/bench")

CASES = (
    # name, uvloop, aiobotocore
    ("store, uvloop", True, False),
    ("store, asyncio", False, False),
    ("aiobotocore, uvloop", True, True),
    ("aiobotocore, asyncio", False, True),
)


async def each(count: int, concurrency: int, call: Callable[[int], Awaitable[object]]) -> None:
    """Makes a call for every number, so many at once."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(work() for _ in range(concurrency)))


async def measure(server: Server, run: int, completions: int, concurrency: int, official: bool) -> dict[str, float]:
    """CPU and wall time of so many completions."""
    store = S3Store.open_for(ROOT, options_for(server))
    begun: list[Any] = [None] * completions

    def path(number: int) -> StorePath:
        return ROOT / f"{run}/year=2026/{number}"

    async def begin(number: int) -> None:
        upload_id = await store.create_upload(path(number), stamp=f"job/{run}/{number}")
        begun[number] = upload_id, [await store.put_part(path(number), upload_id, 1, b"data")]

    async def ours(number: int) -> None:
        upload_id, parts = begun[number]
        await store.complete_upload(path(number), upload_id, parts, exclusive=True)

    try:
        await each(completions, concurrency, begin)
        if not official:
            return await _timed(completions, concurrency, ours)
        return await _official(server, completions, concurrency, path, begun)
    finally:
        await store.close()


async def _official(
    server: Server, completions: int, concurrency: int, path: Callable[[int], StorePath], begun: list[Any]
) -> dict[str, float]:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    config = AioConfig(max_pool_connections=concurrency, parameter_validation=False, s3={"addressing_style": "path"})
    async with get_session().create_client(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=KEY,
        config=config,
    ) as client:

        async def theirs(number: int) -> None:
            upload_id, parts = begun[number]
            await client.complete_multipart_upload(
                Bucket=BUCKET,
                Key=path(number).path[1:],
                UploadId=upload_id,
                MultipartUpload={"Parts": [{"ETag": parts[0].etag, "PartNumber": 1}]},
                IfNoneMatch="*",
            )

        return await _timed(completions, concurrency, theirs)


async def _timed(count: int, concurrency: int, call: Callable[[int], Awaitable[object]]) -> dict[str, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    await each(count, concurrency, call)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu_us": cpu / count * 1e6, "per_s": count / wall}


def run(completions: int, concurrency: int, rounds: int) -> dict[str, dict[str, float]]:
    """Every case in turn, so many times; the medians. Without aiobotocore its cases are left out."""
    import uvloop

    cases = [case for case in CASES if not case[2] or importlib.util.find_spec("aiobotocore")]
    found: dict[str, list[dict[str, float]]] = {}
    os.environ |= {KEY_ID_IS_IN: KEY_ID, KEY_IS_IN: KEY}
    # SeaweedFS may still be writing when it is ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory, seaweedfs(Path(directory)) as server:
        for turn in range(rounds):
            for number, (name, fast, official) in enumerate(cases):
                with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as runner:
                    this = turn * len(cases) + number
                    measured = runner.run(measure(server, this, completions, concurrency, official))
                found.setdefault(name, []).append(measured)
    return {
        name: {key: statistics.median(one[key] for one in some) for key in ("cpu_us", "per_s")}
        for name, some in found.items()
    }


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="writes the figures here, too")
    given = parser.parse_args(arguments)
    found = run(given.completions, given.concurrency, given.rounds)
    print(f"{'':28}{'CPU a completion':>18}{'completions a second':>24}")
    for name, figures in found.items():
        print(f"{name:28}{figures['cpu_us']:>15.0f} us{figures['per_s']:>24,.0f}")
    if len(found) < len(CASES):
        print("aiobotocore is not installed: uv run --with aiobotocore python -m benchmarks.s3_complete")
    if given.json:
        Path(given.json).write_text(json.dumps({"name": NAME, "completions": given.completions, "cases": found}))


if __name__ == "__main__":
    main()
