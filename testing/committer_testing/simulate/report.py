"""Report of a search, as text and as JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from committer_testing.simulate.minimise import minimise
from committer_testing.simulate.result import Result
from committer_testing.simulate.scenario import Scenario
from committer_testing.simulate.simulation import simulate

_MOST_MINIMISED = 5


@dataclass
class Report:
    """Adds up what runs came to.

    Attributes:
        options: What to add to a replay command.
        history: Whether to tell the history of every run.
        command: What a replay command begins with.
        schedules: Runs.
        calls: Store calls in all.
        faults: Faults that were met, in all.
        fates: How jobs ended.
        violations: Each with seed, guarantee, message, replay command and minimised history.
        seconds: Real seconds.
    """

    options: str = ""
    history: bool = False
    command: str = "python -m committer_testing.simulate"
    schedules: int = 0
    calls: int = 0
    faults: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    violations: list[dict[str, object]] = field(default_factory=list)
    seconds: float = 0.0
    _histories: list[str] = field(default_factory=list)

    def run(self, scenarios: Iterable[Scenario]) -> None:
        """Runs all of them."""
        began = time.perf_counter()
        for scenario in scenarios:
            try:
                result = simulate(scenario)
            except Exception as error:
                error.add_note(f"again: {self._replay(scenario)}")
                raise
            self._add(result)
        self.seconds += time.perf_counter() - began

    def _add(self, result: Result) -> None:
        self.schedules += 1
        self.calls += result.calls
        self.faults += len(result.faults)
        self.fates.update(result.fates.values())
        if self.history:
            self._histories += ["", *describe(result.scenario), *result.history()]
        if not result.violations:
            return
        smallest = minimise(result) if len(self.violations) < _MOST_MINIMISED else None
        shown, history = (smallest, smallest.history()) if smallest is not None else (result, [])
        for violation in result.violations:
            self.violations.append(
                {
                    "seed": result.scenario.seed,
                    "guarantee": violation.guarantee,
                    "message": violation.message,
                    "replay": self._replay(result.scenario),
                    "history": [*describe(shown.scenario), *history],
                }
            )

    def _replay(self, scenario: Scenario) -> str:
        if scenario.forced is not None:
            return f"{self.command}{self.options}"
        return f"{self.command} --replay {scenario.seed}{self.options}"

    def text(self) -> str:
        """For a terminal."""
        lines = list(self._histories)
        for violation in self.violations:
            lines += ["", f"VIOLATION {violation['message']}", f"  again: {violation['replay']}"]
            history: list[str] = violation["history"]  # type: ignore[assignment]
            lines += [f"  {line}" for line in history[:1]]
        shown = next((violation for violation in self.violations if violation["history"]), None)
        if shown is not None:
            lines += ["", "the first one, with everything left out that it does not need:", ""]
            lines += [str(line) for line in shown["history"]]  # type: ignore[attr-defined]
        lines += ["", self.summary()]
        return "\n".join(lines).lstrip("\n")

    def summary(self) -> str:
        """One line."""
        rate = self.schedules / self.seconds if self.seconds else 0.0
        ended = ", ".join(f"{number} {word}" for word, number in sorted(self.fates.items()))
        return (
            f"{self.schedules} schedules, {self.calls} calls, {self.faults} faults injected, "
            f"{len(self.violations)} violations, {self.seconds:.1f} seconds ({rate:.0f} a second); jobs: {ended}"
        )

    def as_json(self) -> dict[str, object]:
        """For a program."""
        return {
            "schedules": self.schedules,
            "calls": self.calls,
            "faults": self.faults,
            "violations": self.violations,
            "seconds": round(self.seconds, 3),
        }


def describe(scenario: Scenario) -> list[str]:
    """What a run is about, a line each thing."""
    forced = f", faults at {dict(scenario.forced)}" if scenario.forced is not None else ""
    again = ", records read again" if scenario.reads_again else ""
    lines = [f"seed {scenario.seed}, store {scenario.kind}, fault rate {scenario.fault_rate}{forced}{again}"]
    lines += [
        f"  {job.job_id}: {job.committer}, by {job.delivery}, {job.config.conflict_mode}, existing target "
        f"{job.config.existing_target}; {job.tasks} tasks of {job.files} files; mischief {job.mischief}"
        for job in scenario.jobs
    ]
    return [*lines, *(f"  {event}" for event in scenario.events), ""]
