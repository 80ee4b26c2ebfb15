"""Command line: `python -m tests.protocol_model`.

Without arguments: all scenarios without faults and with one. `--quick`: what the test runs. `--all`: the nightly run, whole.
`--mutant NAME` or `--mutant all`: planted faults. Exit code 1 where a violation was found, or a planted fault was not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.protocol_model.mutants import MUTANTS, hunt
from tests.protocol_model.runs import KINDS, QUICK, QUICK_MUTANTS, Run, all_runs
from tests.protocol_model.scenarios import SCENARIOS
from tests.protocol_model.search import FAULTS, Result


def report(run: Run, result: Result, *, trace: bool) -> None:
    said = " | ".join(found.what for found in result.violations) or "ok"
    cut = "" if result.whole else " (cut)"
    print(
        f"{run.kind:12}{run.scenario:34}faults {run.faults}: {result.states:9} states {result.ends:7} ends"
        f" {result.seconds:6.0f} s  {said}{cut}",
        flush=True,
    )
    if trace:
        for found in result.violations:
            print("  " + found.what, *found.steps, sep="\n    ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the arguments ask for; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.protocol_model", description=__doc__)
    parser.add_argument("--list", action="store_true", help="names of scenarios and planted faults")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--mutant", metavar="NAME")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--scenario", choices=SCENARIOS)
    parser.add_argument("--faults", type=int)
    parser.add_argument("--only", default=",".join(FAULTS), help="kinds of faults; also again-mark")
    parser.add_argument("--limit", type=int, help="states of one search")
    parser.add_argument("--trace", action="store_true", help="print the steps that lead to a violation")
    parser.add_argument("--strict", action="store_true", help="allow none of the exceptions E1 and E4")
    asked = parser.parse_args(arguments)
    if asked.list:
        print("scenarios:", *SCENARIOS, sep="\n  ")
        print("planted faults:", *(f"{name}: {mutant.broken}" for name, mutant in MUTANTS.items()), sep="\n  ")
        return 0
    bad = 0
    if asked.mutant or asked.quick:
        names = QUICK_MUTANTS if asked.quick else MUTANTS if asked.mutant == "all" else (asked.mutant,)
        for name in names:
            mutant, result = MUTANTS[name], hunt(name, trace=asked.trace)
            bad += not result.violations
            report(Run(mutant.kind, mutant.scenario, mutant.faults), result, trace=asked.trace)
            print(f"  {name}: {'found' if result.violations else 'NOT FOUND'}", flush=True)
        if not asked.quick:
            return 1 if bad else 0
    for run in QUICK if asked.quick else all_runs(whole=asked.all):
        if asked.kind in {None, run.kind} and asked.scenario in {None, run.scenario}:
            if asked.faults in {None, run.faults}:
                result = run.search(tuple(asked.only.split(",")), asked.limit, trace=asked.trace, strict=asked.strict)
                bad += bool(result.violations)
                report(run, result, trace=asked.trace)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
