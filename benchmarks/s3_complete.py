"""What one completion of an upload costs the client: this store beside aiobotocore, on the same SeaweedFS.

    uv run python -m benchmarks.s3_complete [--completions 2000] [--concurrency 32] [--rounds 3] [--json FILE]
    uv run --with aiobotocore python -m benchmarks.s3_complete         # beside aiobotocore, which pins its own botocore

Uploads of one small part are begun beforehand. What is timed is `complete_upload`, with `If-None-Match: *`, without the
engine, over plain HTTP; of aiobotocore the same call with parameter validation off. They take turns in each round. What
counts is CPU time of this process a completion: the rate is the server's.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.client_cpu import S3_COMPLETE, command_line, each, in_turns, timed
from committer.paths import StorePath
from committer.stores.s3 import S3Store
from tests.s3.bucket import KEY_ID_IS_IN, KEY_IS_IN, options_for
from tests.s3.servers import BUCKET, KEY, KEY_ID, Server, seaweedfs

ROOT = StorePath("s3", BUCKET, "/bench")

CASES = (
    # name, uvloop, aiobotocore
    ("store, uvloop", True, False),
    ("store, asyncio", False, False),
    ("aiobotocore, uvloop", True, True),
    ("aiobotocore, asyncio", False, True),
)


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
            return await timed(completions, concurrency, ours)
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

        return await timed(completions, concurrency, theirs)


def run(completions: int, concurrency: int, rounds: int) -> dict[str, dict[str, float]]:
    """Every case in turn, so many times; the medians. Without aiobotocore its cases are left out."""
    os.environ |= {KEY_ID_IS_IN: KEY_ID, KEY_IS_IN: KEY}
    # SeaweedFS may still be writing when it is ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory, seaweedfs(Path(directory)) as server:

        def measured(official: bool) -> Callable[[int], Coroutine[Any, Any, dict[str, float]]]:
            return lambda turn: measure(server, turn, completions, concurrency, official)

        there = importlib.util.find_spec("aiobotocore") is not None
        cases = [(name, fast, measured(official)) for name, fast, official in CASES if there or not official]
        return in_turns(cases, rounds)


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    found = command_line(
        run, arguments, name=S3_COMPLETE, what="completion", count=2000, concurrency=32, description=__doc__
    )
    if len(found) < len(CASES):
        print("aiobotocore is not installed: uv run --with aiobotocore python -m benchmarks.s3_complete")


if __name__ == "__main__":
    main()
