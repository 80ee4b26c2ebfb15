"""The command line: ``python -m committer.testing.simulate``."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterable, Sequence

from committer.testing.simulate.exhaustive import every_fault
from committer.testing.simulate.hunt import MOST_SEEDS, Find, hunt
from committer.testing.simulate.mutants import MUTANTS, UNSAFE, apply, committer_of
from committer.testing.simulate.reach import Reach
from committer.testing.simulate.report import Report
from committer.testing.simulate.scenario import ENGINE, Scenario, draw_scenario

CLEAN, VIOLATION, USAGE = 0, 1, 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m committer.testing.simulate",
        description="Searches for a counter-example to the guarantees: clusters in virtual time, faults from a seed.",
    )
    parser.add_argument("--seeds", type=int, default=None, metavar="N", help="how many seeds to run (100)")
    parser.add_argument("--start", type=int, default=0, metavar="S", help="the first seed (0)")
    parser.add_argument("--replay", type=int, default=None, metavar="SEED", help="run one seed and print its history")
    parser.add_argument("--exhaustive", action="store_true", help="every single fault at every call of small jobs")
    parser.add_argument(
        "--pairs", action="store_true", help="with --exhaustive: all pairs of faults of the smallest job"
    )
    parser.add_argument(
        "--committer",
        choices=sorted(ENGINE),
        default=None,
        help="magic runs on the S3 profile (manifest; with --exhaustive each on its stores)",
    )
    parser.add_argument("--mutant", default=None, metavar="NAME|all", help="plant a bug that must be found")
    parser.add_argument("--coverage", action="store_true", help="say which branches of the engine were never reached")
    parser.add_argument("--json", default=None, metavar="FILE", help="write the result as JSON too")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the search; the exit code: 0 clean, 1 a violation, 2 usage."""
    parser = _parser()
    try:
        given = parser.parse_args(arguments)
        _check(parser, given)
    except SystemExit as stop:
        return USAGE if stop.code else CLEAN
    # The engine warns of every abort and cleanup that trouble keeps it from.
    logging.disable(logging.WARNING)
    try:
        if given.mutant == "all":
            return _hunt_all(given)
        return _search(given)
    finally:
        logging.disable(logging.NOTSET)


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    if given.mutant is not None and given.mutant not in {"all", *MUTANTS, *UNSAFE}:
        parser.error(f"no mutant {given.mutant!r}; there are: all, {', '.join([*MUTANTS, *UNSAFE])}")
    if given.seeds is not None and given.seeds < 1:
        parser.error("--seeds must be at least 1")
    if given.pairs and not given.exhaustive:
        parser.error("--pairs needs --exhaustive")
    if given.mutant == "all" and (given.exhaustive or given.replay is not None or given.coverage):
        parser.error("--mutant all goes with --seeds, --start and --json only")
    if given.exhaustive and (given.replay is not None or given.seeds is not None):
        parser.error("--exhaustive draws no seeds")


def _search(given: argparse.Namespace) -> int:
    options = f" --mutant {given.mutant}" if given.mutant else ""
    if given.committer is not None:
        options += f" --committer {given.committer}"
    report = Report(options, history=given.replay is not None)
    reach = Reach() if given.coverage else None
    with apply(given.mutant):
        if reach is not None:
            with reach:
                report.run(_scenarios(given))
        else:
            report.run(_scenarios(given))
        _say(report.text())
    if reach is not None:
        _say(reach.text())
    if given.json is not None:
        _save(given.json, report.as_json())
    return VIOLATION if report.violations else CLEAN


def _scenarios(given: argparse.Namespace) -> Iterable[Scenario]:
    if given.exhaustive:
        return every_fault(given.committer, pairs=given.pairs)
    committer = committer_of(given.mutant, given.committer or "manifest")
    if given.replay is not None:
        return [draw_scenario(given.replay, committer)]
    seeds = 100 if given.seeds is None else given.seeds
    return (draw_scenario(seed, committer) for seed in range(given.start, given.start + seeds))


def _hunt_all(given: argparse.Namespace) -> int:
    finds: list[Find] = []
    for name in [*MUTANTS, *UNSAFE]:
        find = hunt(name, start=given.start, most=given.seeds or MOST_SEEDS)
        finds.append(find)
        _say(find.text())
    if given.json is not None:
        _save(given.json, {"mutants": [find.as_json() for find in finds]})
    return CLEAN if all(find.seeds is not None for find in finds) else VIOLATION


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _save(path: str, content: dict[str, object]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
