"""Plants bugs that the simulator must find: ``python -m tests.simulate --mutant NAME|all``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from committer_testing.simulate.command import CLEAN, USAGE, VIOLATION, build_parser, check, quiet, save, say, search
from committer_testing.simulate.report import Report
from tests.simulate.hunt import MOST_SEEDS, Find, hunt
from tests.simulate.mutants import IN_FINDINGS, MUTANTS, READ_OTHERWISE, WITH_WORKERS, apply, committer_of

PROGRAM = "python -m tests.simulate"


def main(arguments: Sequence[str] | None = None) -> int:
    """Searches with a bug planted; 0 when every one of `all` was found, and when one bug was not, else 1; 2 for usage."""
    parser = build_parser(PROGRAM)
    parser.add_argument("--mutant", required=True, metavar="NAME|all", help="plant a bug that must be found")
    try:
        given = parser.parse_args(arguments)
        check(parser, given)
        _check_mutant(parser, given)
    except SystemExit as stop:
        return USAGE if stop.code else CLEAN
    with quiet():
        if given.mutant == "all":
            return _hunt([name for name in MUTANTS if name not in IN_FINDINGS], given)
        if _is_read_otherwise(given.mutant):
            return _hunt([given.mutant], given)
        given.committer = committer_of(given.mutant, given.committer or "manifest")
        given.workers = given.workers or given.mutant in WITH_WORKERS
        report = Report(f" --mutant {given.mutant}", history=given.replay is not None, command=PROGRAM)
        with apply(given.mutant):
            return search(given, report)


def _check_mutant(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    if given.mutant not in {"all", *MUTANTS}:
        parser.error(f"no mutant {given.mutant!r}; there are: all, {', '.join(MUTANTS)}")
    if given.mutant == "all" and (given.exhaustive or given.replay is not None or given.coverage):
        parser.error("--mutant all goes with --seeds, --start and --json only")
    if _is_read_otherwise(given.mutant) and (given.exhaustive or given.replay is not None or given.coverage):
        parser.error(f"--mutant {given.mutant} goes with --seeds, --start and --json only")


def _is_read_otherwise(mutant: str) -> bool:
    return committer_of(mutant) in READ_OTHERWISE


def _hunt(names: Sequence[str], given: argparse.Namespace) -> int:
    finds: list[Find] = []
    for name in names:
        find = hunt(name, start=given.start, most=given.seeds or MOST_SEEDS)
        finds.append(find)
        say(find.text())
    if given.json is not None:
        save(given.json, {"mutants": [find.as_json() for find in finds]})
    return CLEAN if all(find.seeds is not None for find in finds) else VIOLATION


if __name__ == "__main__":
    sys.exit(main())
