"""Breadth-first search over all interleavings of the processes' calls, with a budget of faults.

Faults: `crash` (before a call; with the call sent: its effect comes late), `lost` (effect, no answer), `late` (no answer;
the effect comes once at any later time, or never), `again` (answered; the effect comes once more at any later time, or
never), `again-mark` (the same of the call that makes a job's directory). Stores, calls, answers and processes are
numbered once, so that a state is a short tuple of integers and each step is looked up.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable
from typing import Any, NamedTuple

from tests.protocol_model.checks import Scenario, Settled, late_after_end, settle, violated, wrong_answer
from tests.protocol_model.processes import LOST, Process, World, advance
from tests.protocol_model.stores import READS, REPEATED, Store, apply

FAULTS = ("crash", "lost", "late", "again")
DEAD = -1


class Numbers:
    """Numbers values in the order in which they are first seen."""

    def __init__(self) -> None:
        self.of: dict[Hashable, int] = {}
        self.values: list[Any] = []

    def __call__(self, value: Hashable) -> int:
        number = self.of.get(value)
        if number is None:
            number = self.of[value] = len(self.values)
            self.values.append(value)
        return number


class Found(NamedTuple):
    """A violation and the steps that lead to it."""

    what: str
    steps: tuple[str, ...]


class Result(NamedTuple):
    """Result of a search."""

    states: int
    ends: int
    seconds: float
    whole: bool  # no limit was reached
    violations: tuple[Found, ...]


class Search:
    """The search of one scenario on one kind of store."""

    def __init__(self, world: World, scenario: Scenario, faults: int, kinds: tuple[str, ...] = FAULTS) -> None:
        self.world, self.scenario, self.faults, self.kinds = world, scenario, faults, frozenset(kinds)
        self.stores, self.calls, self.answers, self.lates = Numbers(), Numbers(), Numbers(), Numbers()
        self.processes: Numbers = Numbers()
        self.next_call: list[int] = []  # by process: its call, or -1 when it ended
        self.results: list[Any] = []
        self.stepped: dict[tuple[int, int], tuple[int, int]] = {}  # store, call -> store, answer
        self.continued: dict[tuple[int, int], int] = {}  # process, answer -> process
        self.checked: dict[int, str | None] = {}
        self.ended: dict[tuple[int, ...], str | None] = {}
        self.settled: dict[int, Settled] = {}
        self.late_ends: dict[tuple[int, int], str | None] = {}
        self.lost = self.answers(LOST)

    def process(self, state: Process) -> int:
        state, call, result = advance(self.world, state)
        known = len(self.processes.values)
        number = self.processes((state, None if call is not None else repr(result)))
        if number == known:
            self.next_call.append(-1 if call is None else self.calls(call))
            self.results.append(result)
        return number

    def store(self, store: Store) -> int:
        return self.stores(tuple(sorted(store.items())))

    def step(self, store: int, call: int) -> tuple[int, int]:
        got = self.stepped.get((store, call))
        if got is None:
            new, answer = apply(self.world.kind, dict(self.stores.values[store]), self.calls.values[call])
            got = self.stepped[store, call] = (self.store(new), self.answers(answer))
        return got

    def go_on(self, process: int, answer: int) -> int:
        got = self.continued.get((process, answer))
        if got is None:
            state = self.processes.values[process][0]
            got = self.process(state._replace(answers=(*state.answers, self.answers.values[answer])))
            self.continued[process, answer] = got
        return got

    def check(self, store: int) -> str | None:
        if store not in self.checked:
            self.checked[store] = violated(self.world, self.scenario, dict(self.stores.values[store]))
        return self.checked[store]

    def delayed(self, lates: int, call: int) -> int:
        """Returns the delayed requests with one more."""
        value = self.calls.values[call]
        if value[0] in REPEATED:
            value = value[1:]
            call = self.calls(value)
        if value[0] == "fill":
            call = self.calls(("fill again", *value[1:]))
        if value[0] == "put" and "/succ" in value[1] and self.world.kind.name == "adls":
            call = self.calls(("put", value[1], (value[2], "another etag")))  # a second put gives a second etag
        return self.lates(tuple(sorted((*self.lates.values[lates], call))))

    def successors(self, state: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[Any, ...]]]:
        """Returns the next states, each with the step that leads to it: who, what, fault."""
        store, lates, left, *processes = state
        found = []
        for index, process in enumerate(processes):
            call = -1 if process == DEAD else self.next_call[process]
            if call < 0:
                continue
            before, after = tuple(processes[:index]), tuple(processes[index + 1 :])
            new, answer = self.step(store, call)
            mine = self.go_on(process, answer)
            found.append(((new, lates, left, *before, mine, *after), (index, call, answer, "")))
            if not left:
                continue
            if "crash" in self.kinds:
                found.append(((store, lates, left - 1, *before, DEAD, *after), (index, call, -1, "crash")))
            verb = self.calls.values[call][0]
            if verb in READS:
                continue
            unanswered = process if verb in REPEATED else self.go_on(process, self.lost)
            if "lost" in self.kinds:
                found.append(((new, lates, left - 1, *before, unanswered, *after), (index, call, answer, "lost")))
            if "late" in self.kinds:
                more = self.delayed(lates, call)
                found.append(((store, more, left - 1, *before, unanswered, *after), (index, call, -1, "late")))
                if "crash" in self.kinds:
                    found.append(((store, more, left - 1, *before, DEAD, *after), (index, call, -1, "crash, late")))
            if ("again-mark" if verb == "mark" else "again") in self.kinds:
                more = self.delayed(lates, call)
                found.append(((new, more, left - 1, *before, mine, *after), (index, call, answer, "again")))
        waiting = self.lates.values[lates]
        for position, call in enumerate(waiting):
            new, answer = self.step(store, call)
            rest = self.lates(waiting[:position] + waiting[position + 1 :])
            found.append(((new, rest, left, *processes), (-1, call, answer, "takes effect")))
        return found

    def end(self, state: tuple[int, ...]) -> str | None:
        """Checks a state in which every process ended or crashed."""
        store, lates, _, *processes = state
        key = (store, lates, *processes)
        if key not in self.ended:
            self.ended[key] = self.wrong_end(store, self.lates.values[lates], lates, processes)
        return self.ended[key]

    def wrong_end(self, store: int, waiting: tuple[int, ...], lates: int, processes: list[int]) -> str | None:
        settled = self.settled.get(store)
        if settled is None:
            before = dict(self.stores.values[store])
            settled = self.settled[store] = settle(self.world, self.scenario, before)
        if settled.message is not None:
            return settled.message
        roles = zip(self.scenario.processes, processes, strict=True)
        told = [(role, self.results[each]) for role, each in roles if each != DEAD]
        message = wrong_answer(told, settled.committed)
        if message is None and waiting:
            key = (self.store(settled.after), lates)
            if key not in self.late_ends:
                calls = tuple(self.calls.values[each] for each in waiting)
                self.late_ends[key] = late_after_end(self.world, self.scenario, settled.after, calls)
            message = self.late_ends[key]
        return message

    def run(self, limit: int = 10**9, *, trace: bool = False, first: bool = False) -> Result:
        """Searches until all states are seen, the limit is reached or, with `first`, a violation is found."""
        begun = time.monotonic()
        start = (
            self.store(self.scenario.initial(self.world)), self.lates(()), self.faults,
            *(self.process(Process(name, arguments)) for name, arguments in self.scenario.processes),
        )  # fmt: skip
        seen = {hash(start)}
        parents: dict[tuple[int, ...], tuple[Any, Any]] = {}
        todo = deque([start])
        states = ends = 0
        found: dict[str, Found] = {}
        while todo and states < limit and not (first and found):
            state = todo.popleft()
            states += 1
            message = self.check(state[0])
            if message is None:
                following = self.successors(state)
                if all(each == DEAD or self.next_call[each] < 0 for each in state[3:]):
                    ends += 1
                    message = self.end(state)
            if message is not None:
                found.setdefault(message.split(":")[0], Found(message, self.path(state, parents)))
                continue
            for new, how in following:
                key = hash(new)
                if key not in seen:
                    seen.add(key)
                    todo.append(new)
                    if trace:
                        parents[new] = (state, how)
        return Result(states, ends, time.monotonic() - begun, not todo, tuple(found.values()))

    def path(self, state: tuple[int, ...], parents: dict[tuple[int, ...], tuple[Any, Any]]) -> tuple[str, ...]:
        steps = []
        while state in parents:
            state, (who, call, answer, fault) = parents[state]
            said = "" if answer < 0 else f" -> {self.answers.values[answer]}"
            steps.append(f"{'late' if who < 0 else who} {fault} {self.calls.values[call]}{said}")
        return tuple(reversed(steps))
