"""Counts what was tried and says so at the end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

_PROPERTY = "guarantees"


class Tally:
    """What one test tried.

    Attributes:
        calls: Store calls at which trouble was tried.
        runs: Jobs run with trouble.
        words: How they ended.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.runs = 0
        self.words: Counter[str] = Counter()

    def note(self, word: str) -> None:
        """One run ended."""
        self.runs += 1
        self.words[word] += 1


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Iterator[Tally]:
    """What this test tries; added up in the terminal's summary."""
    made = Tally()
    # The engine warns of every abort and cleanup that trouble keeps it from.
    logging.disable(logging.WARNING)
    yield made
    logging.disable(logging.NOTSET)
    record_property(_PROPERTY, {"calls": made.calls, "runs": made.runs, **made.words})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many calls and faults were tried."""
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == _PROPERTY:
                    total.update(value)
    if total:
        calls, runs = total.pop("calls", 0), total.pop("runs", 0)
        ended = ", ".join(f"{number} {word}" for word, number in sorted(total.items()))
        terminalreporter.write_line(f"guarantees: trouble tried {runs} times at {calls} store calls; ended: {ended}")
