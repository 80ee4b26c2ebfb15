"""Which runs the sweep consists of: by what a call is made for, as all runs would take hours.

A system call is taken once for each meaning (`Call.meaning`): the store call that it belongs to, about which path, in which
phase of the job. What a flavour, or a disk, has in common with one before it is not tried again; but from the intent
on, where a fault leaves something to finish or to roll back, every flavour is its own: there each call that changes
something is tried once more, until only cleaning is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.disk_sweep.calls import CHANGING, ERRORS
from tests.disk_sweep.intruder import most_places
from tests.disk_sweep.meaning import Call
from tests.disk_sweep.runs import Case
from tests.disk_sweep.victims import OTHERS

KINDS: Final = ("errors", "exits", "stops", "links")
MOUNTED: Final = "disks"
_LATE: Final = frozenset({"intent", "decision", "outcome"})


@dataclass
class Selection:
    """Chooses the runs, flavour after flavour.

    Attributes:
        every: Take every call, whatever it has in common with others.
    """

    every: bool = False
    _known: set[str] = field(default_factory=set)
    _known_late: set[tuple[str, str, str, str]] = field(default_factory=set)

    def cases(self, kind: str, flavour: str, disk: str, victim: str, calls: list[Call]) -> Iterator[Case]:
        """The runs of a kind for one job."""
        make = _MAKERS[kind]
        for number, call in enumerate(calls, start=1):
            before = calls[number - 2] if number > 1 else None
            new, own = self._is_new(kind, flavour, disk, victim, call)
            if new or own or self.every:
                for fault in make(call, before, number, new or self.every):
                    yield Case(flavour, disk, victim, fault, number)

    def _is_new(self, kind: str, flavour: str, disk: str, victim: str, call: Call) -> tuple[bool, bool]:
        """Whether the call is new to the sweep, and whether it is new to this flavour, and changes something late."""
        key = f"{kind} {call.meaning}"
        new = key not in self._known
        self._known.add(key)
        late = key, flavour, disk, victim
        own = call.name in CHANGING and call.phase in _LATE and late not in self._known_late
        self._known_late.add(late)
        return new, own


def _errors(call: Call, _before: Call | None, number: int, new: bool) -> Iterator[str]:
    """Every error that the call can fail with, once, and from then on, or done and failed where it changes something.

    From then on: between two changes it hardly matters which call is the first to fail, so there errors take turns. So
    do they where a descriptor is closed, and where a call is new to the flavour alone.
    """
    errors = ERRORS[call.name]
    changes, one = call.name in CHANGING, errors[number % len(errors)]
    if not new:
        yield f"once {one}" if number % 2 else "late EIO"
        return
    for error in errors if call.name != "close" else [one]:
        yield f"once {error}"
    yield from (f"on {error}" for error in (errors if changes else [one]))
    if changes:
        yield f"late {'EIO' if number % 2 else 'ESTALE'}"


def _exits(call: Call, _before: Call | None, _number: int, new: bool) -> Iterator[str]:
    """Where a process ends only what it changed counts for others: so around each call that changes something.

    Before one the disk is as after the one before: where the flavour alone is new, that is enough.
    """
    if call.name in CHANGING:
        yield "after"
        if new:
            yield "before"


def _stops(call: Call, before: Call | None, number: int, new: bool) -> Iterator[str]:
    """Where it stands still, what it saw counts, too: so before a change, and right after one."""
    if call.name in CHANGING:
        yield from (f"stop {other}" for other in (OTHERS if new else [OTHERS[number % len(OTHERS)]]))
    elif before is not None and before.name in CHANGING:
        # What it saw of its own change, it may go by: the same others meet it in turns.
        yield f"stop {OTHERS[number % len(OTHERS)]}"


def _links(call: Call, _before: Call | None, number: int, new: bool) -> Iterator[str]:
    """A link in each place that the store call goes by, before each of its system calls that changes something; in one
    of them in turns before the others.
    """
    most = most_places(call.operation)
    if new and most:
        yield from (f"plant {place}" for place in (range(most) if call.name in CHANGING else [number % most]))


def _disks(_call: Call, _before: Call | None, number: int, new: bool) -> Iterator[str]:
    """Between two changes it hardly matters which call is the first to meet it, so the two take turns."""
    if new:
        yield ("full", "read-only")[number % 2]


_MAKERS: Final[dict[str, Callable[[Call, Call | None, int, bool], Iterator[str]]]] = {
    "errors": _errors,
    "exits": _exits,
    "stops": _stops,
    "links": _links,
    MOUNTED: _disks,
}
