"""How much of a sweep one run tries, and counts of what was tried, told at the end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest

from tests.sweeps import sample

T = TypeVar("T")

_PROPERTY = "guarantees"
# Every run tries each kind of trouble in each situation, at one in so many of the places; other commits have the others.
# An odd number: at every second call other processes end the job in another way.
_ONE_IN = 59


class Tally:
    """What one test tries.

    Args:
        one_in: It tries one in so many of the places where it could.
        name: Of the test. Each begins at another place, so that one run of all tests meets all places.

    Attributes:
        calls: Store calls at which trouble was tried.
        runs: Jobs run with trouble.
        words: How they ended.
    """

    def __init__(self, one_in: int = 1, name: str = "") -> None:
        self._one_in = one_in
        self._name = name
        self._shares = 0
        self.calls = 0
        self.runs = 0
        self.words: Counter[str] = Counter()

    def note(self, word: str) -> None:
        """One run ended."""
        self.runs += 1
        self.words[word] += 1

    def share(self, places: Sequence[T]) -> Sequence[T]:
        """The places that this run tries. Asked again, it begins elsewhere."""
        self._shares += 1
        return sample(places, self._one_in, f"{self._name} {self._shares}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that counts takes the share of this commit, and all of it behind `slow`."""
    if "tally" in metafunc.fixturenames:
        shares = [pytest.param(1, id="whole", marks=pytest.mark.slow)]
        if metafunc.definition.get_closest_marker("slow") is None:
            shares.insert(0, pytest.param(_ONE_IN, id="share"))
        metafunc.parametrize("tally", shares, indirect=True)


@pytest.fixture
def quiet() -> Iterator[None]:
    """No warnings of the engine, which warns of every abort and cleanup that trouble keeps it from."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def tally(
    request: pytest.FixtureRequest, quiet: None, record_property: Callable[[str, object], None]
) -> Iterator[Tally]:
    """What this test tries; added up in the terminal's summary."""
    made = Tally(request.param, request.node.name)
    yield made
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
