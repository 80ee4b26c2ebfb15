"""What it takes to replace old files on S3: deleted one by one, and a thousand in a request, each on its condition.

    uv run --extra s3 python -m benchmarks.s3_overwrite [--files 20000] [--rounds 3] [--json FILE]

A job of ten files replaces a table of so many objects in a hundred directories, on SeaweedFS. What is measured is the
job commit: requests that are sent, CPU of this process, wall time. The ways take turns on the same server. There is no
limit on the rate; under S3's, which counts keys, both ways delete 3,500 objects a second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

import committer
from benchmarks.client_cpu import each
from benchmarks.kept import ROUNDS, aligned, keep, machine
from committer import CommitterConfig
from committer.paths import StorePath
from committer.stores.base import Capabilities
from committer.stores.helpers import walk
from committer.stores.s3 import S3Store
from tests.s3.bucket import KEY_ID_IS_IN, KEY_IS_IN, options_for
from tests.s3.servers import BUCKET, KEY, KEY_ID, Server, seaweedfs

NAME: Final = "s3-overwrite"
ONE_BY_ONE: Final = "one by one"
TOGETHER: Final = "a thousand in a request"
FIGURES: Final = {"requests": "requests", "cpu_s": "CPU s", "wall_s": "wall s"}
_CONFIG: Final = CommitterConfig(conflict_mode="replace", superseded_scope="destination", io_rate=1e9)
_DIRECTORIES: Final = 100
_AT_ONCE: Final = 64


class OneByOne(S3Store):
    """As where the service does not hear the conditions of such a request."""

    @property
    def capabilities(self) -> Capabilities:
        """Those of the service, but for that."""
        return msgspec.structs.replace(super().capabilities, conditional_batch_delete=False)


async def measure(server: Server, way: str, turn: int, files: int) -> dict[str, float]:
    """The figures of one job commit."""
    requests = 0

    async def count(*_about: object) -> None:
        nonlocal requests
        requests += 1

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(count)
    root = StorePath("s3", BUCKET, f"/{NAME}/{turn}")
    async with aiohttp.ClientSession(
        trace_configs=[trace], connector=aiohttp.TCPConnector(limit=_AT_ONCE), auto_decompress=False
    ) as session:
        kind = S3Store if way == TOGETHER else OneByOne
        store = kind.open_for(root, options_for(server, http_session=session))

        async def put(number: int) -> None:
            await store.put(root / f"p={number % _DIRECTORIES}/old-{number}", b"%d" % number)

        await each(files, _AT_ONCE, put)
        job = await committer.open_job(root, config=_CONFIG, storage_options={"store": store})
        async with job.task_attempt(0) as task:
            for number in range(10):
                async with task.open(f"p={number}/new") as file:
                    await file.write(b"new")
        before, cpu, wall = requests, time.process_time(), time.perf_counter()
        report = await job.commit(tasks=1)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        sent = requests - before
        assert report.files_committed == 10
        standing = [status.path.name async for status in walk(store, root) if not status.is_directory]
        assert sorted(standing) == ["_SUCCESS", *["new"] * 10], len(standing)
        await job.close()
        await store.close()
    return {"requests": sent, "cpu_s": cpu, "wall_s": wall}


def run(files: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Both ways in turn, so many times."""
    os.environ |= {KEY_ID_IS_IN: KEY_ID, KEY_IS_IN: KEY}
    found: dict[str, list[dict[str, float]]] = {ONE_BY_ONE: [], TOGETHER: []}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory, seaweedfs(Path(directory)) as server:
        for number in range(rounds):
            for place, (way, measured) in enumerate(found.items()):
                measured.append(asyncio.run(measure(server, way, 2 * number + place, files)))
    return found


def rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A line a way, and their ratios: median (least to most) over the rounds."""
    ways = found["ways"]
    table: list[tuple[str, ...]] = [(f"{found['files']:,} old files deleted", *FIGURES.values())]
    for way, measured in ways.items():
        medians = {figure: statistics.median(one[figure] for one in measured) for figure in FIGURES}
        table.append((way, f"{medians['requests']:,.0f}", f"{medians['cpu_s']:.2f}", f"{medians['wall_s']:.2f}"))
    ratios = []
    for figure in FIGURES:
        each_round = sorted(
            one[figure] / other[figure] for one, other in zip(ways[TOGETHER], ways[ONE_BY_ONE], strict=True)
        )
        middle = statistics.median(each_round)
        ratios.append(f"{middle:.3f} ({each_round[0]:.3f} to {each_round[-1]:.3f})")
    return [*table, ("ratio", *ratios)]


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="writes the figures there, not into benchmarks/results")
    given = parser.parse_args(arguments)
    about = machine()
    found = {"machine": about, "files": given.files, "ways": run(given.files, given.rounds)}
    print(aligned(rows(found)))
    if given.json or given.rounds >= ROUNDS:
        keep(NAME, found, file=given.json)


if __name__ == "__main__":
    main()
