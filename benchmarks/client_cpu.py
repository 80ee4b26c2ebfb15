"""What one call costs the client's processor: cases that take turns, their medians, one table."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.kept import ROUNDS, keep, machine

# Here, where no vendor's package is needed to read what was kept.
ADLS_RENAME = "adls-rename"
S3_COMPLETE = "s3-complete"
GCS_MOVE = "gcs-move"
HTTP_SPLIT = "http-split"
TEN_MILLION = "ten-million"

Figures: TypeAlias = dict[str, float]
Run: TypeAlias = Callable[[int, int, int], dict[str, Figures]]


async def each(count: int, concurrency: int, call: Callable[[int], Awaitable[object]]) -> None:
    """Makes a call for every number below `count`, so many at once."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(work() for _ in range(concurrency)))


async def timed(count: int, concurrency: int, call: Callable[[int], Awaitable[object]]) -> Figures:
    """Makes them as `each` does: processor time of one in microseconds, and how many a second."""
    cpu, wall = time.process_time(), time.perf_counter()
    await each(count, concurrency, call)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu_us": cpu / count * 1e6, "per_s": count / wall}


def in_turns(
    cases: Iterable[tuple[str, bool, Callable[[int], Coroutine[Any, Any, Figures]]]], rounds: int
) -> dict[str, Figures]:
    """Every case in turn, so many times; the medians.

    Args:
        cases: Name, whether on uvloop, and what measures it, given the number of the turn.
        rounds: How many times.
    """
    import uvloop

    found: dict[str, list[Figures]] = {}
    turn = 0
    for _ in range(rounds):
        for name, fast, measure in cases:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as runner:
                found.setdefault(name, []).append(runner.run(measure(turn)))
            turn += 1
    return {
        name: {key: statistics.median(one[key] for one in some) for key in ("cpu_us", "per_s")}
        for name, some in found.items()
    }


def command_line(
    run: Run,
    arguments: list[str] | None,
    *,
    name: str,
    what: str,
    count: int,
    concurrency: int,
    description: str | None,
) -> Mapping[str, Figures]:
    """Measures, prints, keeps the figures of three rounds or more; returns them.

    Args:
        run: Called with the count of calls, how many at once, and the rounds.
        arguments: Of the command line; the process's when None.
        name: The benchmark's, in the JSON.
        what: What one call is, in the singular.
        count: Calls a case makes by default.
        concurrency: How many at once by default.
        description: For ``--help``.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(f"--{what}s", dest="count", type=int, default=count)
    parser.add_argument("--concurrency", type=int, default=concurrency)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="writes the figures there, not into benchmarks/results")
    given = parser.parse_args(arguments)
    about = machine()
    found = run(given.count, given.concurrency, given.rounds)
    print(f"{'':28}{f'CPU a {what}':>18}{f'{what}s a second':>24}")
    for case, figures in found.items():
        print(f"{case:28}{figures['cpu_us']:>15.0f} us{figures['per_s']:>24,.0f}")
    if given.json or given.rounds >= ROUNDS:
        kept = {"machine": about, "what": what, "count": given.count, "rounds": given.rounds, "cases": found}
        keep(name, kept, file=given.json)
    return found


def rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A table of what was kept; the first row is the heading."""
    heading = (f"{found['what']} by", "CPU us", f"{found['what']}s a second")
    return [heading, *((case, f"{one['cpu_us']:.0f}", f"{one['per_s']:,.0f}") for case, one in found["cases"].items())]


def split_rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What `benchmarks/http_split.py` kept, as a table; the first row is the heading."""
    splits = found["splits"]
    table: list[tuple[str, ...]] = [("CPU us a request, in relation to aiohttp alone", *splits)]
    for side in next(iter(splits.values())):
        cells = (split[side] for split in splits.values())
        table.append((side, *(f"{one['cpu_us']:.0f}, {one['ratio']:.2f}" for one in cells)))
    return table


def ten_million_rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What `benchmarks/ten_million.py` kept, as a table; the first row is the heading."""
    heading = ("store", "files", "processes that publish", "wall s", "files a second", "requests a file")
    table: list[tuple[str, ...]] = [(*heading, "CPU us a file: driver", "workers", "driver's peak over idle MB")]
    for one in found["jobs"]:
        files = one["files"]
        table.append(
            (
                one["store"],
                f"{files:,}",
                str(one["workers"]) if one["workers"] else "driver",
                f"{one['wall_s']:.1f}",
                f"{files / one['wall_s']:,.0f}",
                f"{one['requests'] / files:.2f}",
                f"{one['cpu_s'] / files * 1e6:.0f}",
                f"{one['workers_cpu_s'] / files * 1e6:.0f}" if one["workers"] else "",
                f"{one['over_idle_bytes'] / 1e6:.0f}",
            )
        )
    return table
