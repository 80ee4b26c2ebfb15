"""How much of a cap on calls a second a job commit uses, and whether it ever exceeds it.

    uv run benchmarks/rate_cap.py [--shape 1000x100x100] [--rate 10000] [--latencies-ms 0,20] [--rounds 3] [--json FILE]

One job of 100,000 files, prepared by another process, is committed with `io_rate` as its own cap, on a store whose
renames wait and do nothing else. What counts is when the store saw the renames begin: their number after the first
second of the publish stage, in relation to what the cap allows until the last; and the most of them within any one
second, which may be the cap and a burst of 100.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.commit_worker import Shape, measure, prepare_apart
from benchmarks.compare_java import Work
from benchmarks.kept import ROUNDS, aligned, keep, machine, scratch
from benchmarks.slow_store import SlowStore
from benchmarks.traced_store import TracedStore

NAME = "rate-cap"
BURST = 100


def share_of_cap(starts: Sequence[float], rate: float, after_s: float = 1.0) -> float:
    """Calls that began later than `after_s` after the first, in relation to what the cap allows until the last.

    Args:
        starts: When calls began, in order.
        rate: The cap, calls a second.
        after_s: What is left out, in seconds.
    """
    later = [start for start in starts if start >= starts[0] + after_s]
    lasted = starts[-1] - (starts[0] + after_s)
    if lasted <= 0:
        raise ValueError(f"the calls ended within {after_s:g} s: take more files, or a lower cap")
    return len(later) / (lasted * rate)


def most_within(starts: Sequence[float], window_s: float = 1.0) -> int:
    """The most calls that began within any window of this length."""
    held: deque[float] = deque()
    most = 0
    for start in starts:
        held.append(start)
        while held[0] <= start - window_s:
            held.popleft()
        most = max(most, len(held))
    return most


async def commit(shape: Shape, rate: float) -> dict[str, Any]:
    """Commits a prepared job; what the store saw."""
    store = TracedStore(SlowStore(shape.latency_ms / 1000, no_op=True))
    measured = await measure(shape, store=store)
    # The decision's own records are renamed too: only files of tasks are published.
    starts = sorted(span.start for span in store.spans if span.name == "rename_file")
    return {
        "share": share_of_cap(starts, rate),
        "most_in_a_second": most_within(starts),
        "wall_s": measured.wall_s,
        "cpu_s": measured.cpu_s,
        "stages": measured.stages,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="How much of a cap on calls a second a job commit uses.")
    parser.add_argument("--shape", default="1000x100x100", help="tasks x files of a task x directories")
    parser.add_argument("--rate", type=float, default=10_000.0, help="calls a second")
    parser.add_argument("--latencies-ms", default="0,20", help="what each store call waits, several by comma")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="writes every measurement there, not into benchmarks/results")
    arguments = parser.parse_args()
    about = machine()
    found = []
    with scratch() as root:
        for latency_ms in map(float, arguments.latencies_ms.split(",")):
            work = Work.of(arguments.shape, latency_ms, no_op=True)
            rounds = []
            for number in range(arguments.rounds):
                print(
                    f"round {number + 1} of {arguments.rounds}: {latency_ms:g} ms a call", file=sys.stderr, flush=True
                )
                destination = str(root / f"job-{latency_ms:g}-{number}")
                shape = Shape(destination=destination, rate=arguments.rate, **work._asdict())
                prepare_apart(shape)
                rounds.append(asyncio.run(commit(shape, arguments.rate)))
            found.append({"latency_ms": latency_ms, "rounds": rounds})
    print(f"{arguments.shape}, cap of {arguments.rate:,.0f} calls a second")
    print(aligned(rows(found)))
    if arguments.json or arguments.rounds >= ROUNDS:
        kept = {"machine": about, "shape": arguments.shape, "rate": arguments.rate, "latencies": found}
        keep(NAME, kept, file=arguments.json)


def rows(latencies: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One line a latency."""
    found: list[tuple[str, ...]] = [("a call", "share of the cap", "most in a second", "wall s", "CPU s")]
    for one in latencies:
        shares = [measured["share"] for measured in one["rounds"]]
        wall, cpu = (statistics.median(measured[key] for measured in one["rounds"]) for key in ("wall_s", "cpu_s"))
        found.append(
            (
                f"{one['latency_ms']:g} ms",
                f"{statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})",
                f"{max(measured['most_in_a_second'] for measured in one['rounds']):,}",
                f"{wall:.2f}",
                f"{cpu:.2f}",
            )
        )
    return found


if __name__ == "__main__":
    main()
