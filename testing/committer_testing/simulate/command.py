"""The command line of the search."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from committer_testing.simulate.exhaustive import EXHAUSTIVE, every_fault
from committer_testing.simulate.reach import Reach
from committer_testing.simulate.report import Report
from committer_testing.simulate.scenario import ENGINE, Scenario, draw_scenario

PROGRAM = "python -m committer_testing.simulate"
CLEAN, VIOLATION, USAGE = 0, 1, 2


def build_parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    """The options of every command that searches."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Searches for a counter-example to the guarantees: clusters in virtual time, faults from a seed.",
    )
    parser.add_argument("--seeds", type=int, default=None, metavar="N", help="how many seeds to run (100)")
    parser.add_argument("--start", type=int, default=0, metavar="S", help="the first seed (0)")
    parser.add_argument("--replay", type=int, default=None, metavar="SEED", help="run one seed and print its history")
    parser.add_argument(
        "--exhaustive",
        nargs="?",
        const="common",
        choices=EXHAUSTIVE,
        help="every single fault at every call of small jobs, in common situations or in rarer ones; or every pair of "
        "faults of the smallest job",
    )
    parser.add_argument(
        "--committer",
        choices=sorted(ENGINE),
        default=None,
        help="block-list runs on the profile of Azure's flat accounts, all others but manifest on that of S3 "
        "(manifest; with --exhaustive each on its stores)",
    )
    parser.add_argument(
        "--workers", action="store_true", help="workers publish for drivers: some late, some twice, some never heard of"
    )
    parser.add_argument("--coverage", action="store_true", help="say which branches of the engine were never reached")
    parser.add_argument("--json", default=None, metavar="FILE", help="write the result as JSON too")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the search; the exit code: 0 clean, 1 a violation, 2 usage."""
    parser = build_parser()
    try:
        given = parser.parse_args(arguments)
        check(parser, given)
    except SystemExit as stop:
        return USAGE if stop.code else CLEAN
    options = "" if given.committer is None else f" --committer {given.committer}"
    options += " --workers" if given.workers else ""
    options += f" --exhaustive {given.exhaustive}" if given.exhaustive else ""
    with quiet():
        return search(given, Report(options, history=given.replay is not None))


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of the engine, which warns of every abort and cleanup that a fault keeps it from."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Ends the program where options do not go together."""
    if given.seeds is not None and given.seeds < 1:
        parser.error("--seeds must be at least 1")
    if given.exhaustive and (given.replay is not None or given.seeds is not None):
        parser.error("--exhaustive draws no seeds")
    if given.exhaustive and given.workers:
        parser.error("--workers goes with seeds")


def search(given: argparse.Namespace, report: Report) -> int:
    """Runs what the options ask for, and says what came of it; the exit code."""
    reach = Reach() if given.coverage else None
    with reach if reach is not None else nullcontext():
        report.run(_scenarios(given))
    say(report.text())
    if reach is not None:
        say(reach.text())
    if given.json is not None:
        save(given.json, report.as_json())
    return VIOLATION if report.violations else CLEAN


def _scenarios(given: argparse.Namespace) -> Iterable[Scenario]:
    if given.exhaustive:
        return every_fault(given.exhaustive, given.committer)
    committer = given.committer or "manifest"
    if given.replay is not None:
        return [draw_scenario(given.replay, committer, workers=given.workers)]
    seeds = 100 if given.seeds is None else given.seeds
    workers: bool = given.workers
    return (draw_scenario(seed, committer, workers=workers) for seed in range(given.start, given.start + seeds))


def say(text: str) -> None:
    """Prints at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def save(path: str, content: dict[str, object]) -> None:
    """Writes a result as JSON."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
