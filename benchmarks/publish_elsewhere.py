"""Whether the rates of workers that publish add up: one worker beside two, on a store that serves so many calls.

    uv run --extra adls --extra s3 python -m benchmarks.publish_elsewhere [--seconds 10] [--rounds 3] [--stores adls,s3]
        [--json FILE]

Each worker is a process of a `sync.ExecutorPool` that may send half as many calls a second as the store is to serve
(`io_rate` is shared out). The emulator of Azure Data Lake Storage itself refuses what is over that; SeaweedFS has no
such limit. The turns alternate. What counts is the wall time of the publish stage and the files a second that follow,
each after a small commit that starts the workers.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from benchmarks.adls_rename import emulator
from benchmarks.kept import ROUNDS, aligned, keep, machine
from committer import CommitterConfig, sync
from committer.events import JobEvent
from committer_testing.emulators.adls import DEFAULT_KEY
from tests.s3.bucket import KEY_ID_IS_IN, KEY_IS_IN, options_for
from tests.s3.servers import BUCKET, KEY, KEY_ID, seaweedfs

NAME = "publish-elsewhere"
STAGE = "job_stage_publish_elsewhere"
WORKERS = (1, 2)
# What of its share a worker saves up is a burst of a second; looks, and the driver's records, come on top.
_SERVED, _BURST_S = 1.25, 2.0


Serving: TypeAlias = tuple[str, dict[str, object], Callable[[bool], None]]


@contextmanager
def _adls(rate: float) -> Iterator[Serving]:
    with emulator("--filesystem", "data", "--burst-seconds", f"{_BURST_S:g}") as url:
        parts = urlsplit(url)

        def serve(capped: bool) -> None:
            body = json.dumps({"rate": _SERVED * rate if capped else 0}).encode()
            with urlopen(Request(f"{parts.scheme}://{parts.netloc}/_control/rate", body)) as answer:
                answer.read()

        options: dict[str, object] = {"endpoint": url, "account_key": DEFAULT_KEY}
        yield "abfss://data@devstoreaccount1.dfs.core.windows.net/bench", options, serve


@contextmanager
def _s3(_rate: float) -> Iterator[Serving]:
    os.environ |= {KEY_ID_IS_IN: KEY_ID, KEY_IS_IN: KEY}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory, seaweedfs(Path(directory)) as server:
        yield f"s3://{BUCKET}/bench", options_for(server), lambda _capped: None


STORES: Mapping[str, Callable[..., Any]] = {"adls": _adls, "s3": _s3}
# Requests a second of two workers together: well below what the servers do on two cores beside them.
RATES = {"adls": 100.0, "s3": 50.0}


def published(
    destination: str,
    options: dict[str, object],
    pool: sync.ExecutorPool,
    files: int,
    rate: float,
    serve: Callable[[bool], None],
) -> float:
    """Seconds that the publish stage of a job takes; `serve` has the server keep to its cap, or not."""
    began: dict[str, float] = {}
    took: list[float] = []

    def hear(event: JobEvent) -> None:
        if event.stage == STAGE and event.kind == "stage_started":
            began[STAGE] = event.at_s
        if event.stage == STAGE and event.kind == "stage_completed":
            took.append(event.at_s - began[STAGE])

    # Tasks are not what is measured: they have no limit.
    serve(False)
    unlimited = {"io_rate": 0, "azure_io_rate": 0}
    job = sync.open_job(destination, delivery="message", storage_options=options, config=unlimited)
    with job.task_attempt(0) as task:
        for number in range(files):
            with task.open(f"part={number % 10}/{number:06}") as file:
                file.write(b"x")
    job.close()
    limited = CommitterConfig(io_rate=rate, azure_io_rate=rate)
    serve(True)
    time.sleep(_BURST_S)  # it saves up what a burst takes
    with sync.attach_job(job.spec, storage_options=options, config=limited, listeners=[hear]) as driver:
        report = driver.commit(task_commits=[task.task_commit], publish_with=pool)
    assert report.files_committed == files
    return took[0]


def run(stores: list[str], seconds: float, rounds: int) -> dict[str, dict[str, Any]]:
    """Files a second by one worker and by two, in turns; medians, and the ratios of each round."""
    found: dict[str, dict[str, Any]] = {}
    for name in stores:
        per_s: dict[int, list[float]] = {workers: [] for workers in WORKERS}
        rate = RATES[name]
        files = int(seconds * rate / 2)
        with STORES[name](rate) as (root, options, serve):
            for turn in range(rounds):
                for workers in WORKERS:

                    def make(workers: int = workers) -> ProcessPoolExecutor:
                        return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))

                    with sync.ExecutorPool(make, workers, storage_options=options) as pool:
                        limit, place = rate / 2 * workers, f"{root}/{turn}-{workers}"
                        published(f"{place}-before", options, pool, 8 * workers, limit, serve)
                        took = published(place, options, pool, files, limit, serve)
                    per_s[workers].append(files / took)
        ratios = [two / one for one, two in zip(per_s[1], per_s[2], strict=True)]
        found[name] = {
            "rate": rate,
            "files": files,
            "files_per_s": {str(workers): statistics.median(rates) for workers, rates in per_s.items()},
            "ratio": statistics.median(ratios),
            "ratios": [min(ratios), max(ratios)],
        }
    return found


def rows(found: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A table of what was kept; the first row is the heading."""
    table = [("store", "limit of a worker", "files a second, one worker", "two workers", "ratio")]
    for name, figures in found.items():
        per_s, (least, most) = figures["files_per_s"], figures["ratios"]
        shown = f"{figures['ratio']:.2f} ({least:.2f} to {most:.2f})"
        table.append((name, f"{figures['rate'] / 2:.0f}", f"{per_s['1']:.0f}", f"{per_s['2']:.0f}", shown))
    return table


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long one worker is to take, about")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--stores", default=",".join(STORES), help="of adls and s3, by comma")
    parser.add_argument("--json", type=Path, help="writes the figures there, not into benchmarks/results")
    given = parser.parse_args(arguments)
    about = machine()
    found = run(given.stores.split(","), given.seconds, given.rounds)
    print(aligned(rows(found)))
    if given.json or given.rounds >= ROUNDS:
        kept = {"machine": about, "seconds": given.seconds, "rounds": given.rounds, "stores": found}
        keep(NAME, kept, file=given.json)


if __name__ == "__main__":
    main()
