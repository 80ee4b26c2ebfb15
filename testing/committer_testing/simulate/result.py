"""Result of a run: its history, and the violations found."""

from __future__ import annotations

from dataclasses import dataclass, field

from committer.testing.faults import Call
from committer_testing.simulate.scenario import Scenario, Trouble


@dataclass(frozen=True)
class Violation:
    """Something that must never be.

    Attributes:
        guarantee: Which guarantee is broken, as its message names it first.
        message: What was seen.
        at_s: When, in virtual seconds.
    """

    guarantee: str
    message: str
    at_s: float


@dataclass
class Result:
    """What came of one run.

    Attributes:
        scenario: What was run.
        violations: What was wrong, one a guarantee.
        faults: Faults that were met, by process and number of the call.
        events: Numbers of the events that happened.
        calls: Store calls.
        order: Every call but those of the end, by process and number, in the order they set out in.
        fates: How each job ended.
        seconds: Real seconds it took.
        space: The memory space it ran in, which no history mentions.
        log: What happened: virtual time, who, what.
    """

    scenario: Scenario
    violations: list[Violation] = field(default_factory=list)
    faults: dict[tuple[str, int], Trouble] = field(default_factory=dict)
    events: list[int] = field(default_factory=list)
    calls: int = 0
    order: list[tuple[str, int]] = field(default_factory=list)
    fates: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    space: str = ""
    log: list[tuple[float, str, Call | str]] = field(default_factory=list)

    def history(self) -> list[str]:
        """What happened, a line each: virtual seconds, process, call, fault, result."""
        space = f"memory://{self.space}/"
        return [f"{at_s:9.3f} {who:12} {str(what).replace(space, '')}" for at_s, who, what in self.log]
