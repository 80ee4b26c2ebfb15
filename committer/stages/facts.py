"""Facts that a decision rests on: collected before it, read from it and its side files afterwards."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from committer.errors import InvalidPathError, RecordError, StoreNotFoundError
from committer.file_names import check_destination_name, check_file_name, root_of, working_directory_in
from committer.flow.spill import SpillFile
from committer.flow.workers import run_workers
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.records.job_state import Decision, Fact, PlanFile, PlanKind, decode_facts, encode_facts
from committer.records.limits import LIMITS
from committer.records.task_commit import digest_of
from committer.stages.base import StageContext
from committer.stages.names import is_absolute

_KINDS: Final[tuple[PlanKind, ...]] = ("superseded", "identity", "target")
# Side files that are read and decoded concurrently, some 20 MB each.
_FILES_AT_ONCE: Final = 4


class Facts(ABC):
    """A collection of facts of one kind, possibly millions; `of_directories` counts those about directories."""

    count: int
    of_directories: int

    def __bool__(self) -> bool:
        return self.count > 0

    @abstractmethod
    def batches(self) -> AsyncIterator[list[Fact]]:
        """Yields all facts in order, in batches of a few megabytes."""

    async def directories(self) -> set[str]:
        """Returns the parent directories of all names; the empty name for a name at the destination itself."""
        found: set[str] = set()
        async for facts in self.batches():
            found |= directories_of(facts)
        return found


def directories_of(facts: Iterable[Fact]) -> set[str]:
    """Returns the parent directories of the names of some facts."""
    return {fact.path.rpartition("/")[0] for fact in facts}


def count_directories(facts: Iterable[Fact]) -> int:
    """Counts the facts that concern a directory."""
    return sum([fact.is_directory for fact in facts])


class FactList(Facts):
    """Facts in memory."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._facts = list(facts)
        self.count: int = len(self._facts)
        self.of_directories: int = count_directories(self._facts)

    async def batches(self) -> AsyncIterator[list[Fact]]:
        """Yields all facts in one batch."""
        if self._facts:
            yield self._facts


class RecordedFacts(Facts):
    """Facts of one kind that are read from a decision's side files."""

    def __init__(
        self, context: StageContext, files: list[PlanFile], *, of_directories: int, directories: set[str] | None = None
    ) -> None:
        self._context = context
        self._files = files
        self._directories = directories
        self.count: int = sum([file.lines for file in files])
        self.of_directories: int = of_directories

    async def directories(self) -> set[str]:
        """Returns the parent directories; no call if they are known."""
        if self._directories is None:
            self._directories = await super().directories()
        return self._directories

    async def batches(self) -> AsyncIterator[list[Fact]]:
        """Yields the facts of a side file at a time, one call each; `RecordError` if it does not match the decision."""
        for file in self._files:
            yield await _read_file(self._context, file)


class DecisionFacts(NamedTuple):
    """The facts of a decision: old files, identities and targets in the order of the job's files, and `others`."""

    others: list[Fact]
    superseded: Facts = FactList()
    identities: Facts = FactList()
    targets: Facts = FactList()


async def read_facts(context: StageContext, decision: Decision) -> DecisionFacts:
    """Reads and checks every fact of a decision, one call per side file; `RecordError` if one does not match."""
    others: dict[str, list[Fact]] = {}
    of_directories: dict[str, int] = {}

    async def read(file: PlanFile) -> None:
        facts = await _read_file(context, file)
        if any(fact.kind != file.kind if file.kind else fact.kind in _KINDS for fact in facts):
            raise _misplaced(context, f"{file.name} has facts of other kinds than it says")
        of_directories[file.name] = count_directories(facts)
        if not file.kind:
            others[file.name] = facts

    await run_workers(decision.plan, read, workers=_FILES_AT_ONCE, operation="read_facts")
    inline = contained(context, decision.facts, context.layout.decision)

    def of_kind(kind: PlanKind) -> Facts:
        files = [file for file in decision.plan if file.kind == kind]
        given = [fact for fact in inline if fact.kind == kind]
        if not files:
            return FactList(given)
        if given:
            raise _misplaced(context, f"facts of the kind {kind} are both in it and beside it")
        return RecordedFacts(context, files, of_directories=sum(of_directories[file.name] for file in files))

    found = [fact for fact in inline if fact.kind not in _KINDS]
    found += [fact for file in decision.plan for fact in others.get(file.name, ())]
    return DecisionFacts(found, *map(of_kind, _KINDS))


def _misplaced(context: StageContext, problem: str) -> RecordError:
    return RecordError(
        f"the decision's facts are not where they belong: {problem}",
        field="kind",
        path=context.layout.decision,
        next_step=f"find out who writes into the job's directory; {context.abandon_advice()}",
    )


async def _read_file(context: StageContext, file: PlanFile) -> list[Fact]:
    path = context.layout.job_directory / file.name
    try:
        data = await context.store.read(path, limit=LIMITS["facts"])
    except StoreNotFoundError as error:
        raise StoreNotFoundError(
            "a side file of the decision is gone",
            operation="read_facts",
            path=path,
            next_step="put it back where it was" + context.repair_advice(),
        ) from error
    if digest_of(data) != file.digest:
        raise RecordError(
            "a side file of the decision is not the one the decision names",
            field="digest",
            path=path,
            outcome="unknown",
            next_step="find out who writes into the job's directory" + context.repair_advice(),
        )
    return contained(context, decode_facts(data, source=str(path)), path)


def check_superseded(layout: JobLayout, name: str) -> None:
    """Raises `InvalidPathError` if a decision may not contain the name of an old file."""
    roots = layout.roots
    if name == layout.destination.path:
        # An object store may hold an object with the destination's own name.
        return
    root = root_of(name, roots) if is_absolute(name) else None
    if root is not None:
        # An old file may have a name that new files may not: `_SUCCESS` of a table in a subdirectory.
        check_file_name(name[len(root) + 1 :])
    else:
        check_destination_name(name, roots)
    if working_directory_in(name):
        raise InvalidPathError("it lies in a job's own directory, below this destination")


def are_plain(names: list[str]) -> bool:
    """Whether many names are relative and pass `check_superseded`, by one test of all; False proves nothing."""
    text = "\n".join(("", *names, ""))
    odd = ("\n\n", "\n/", "/\n", "//", "\n.", "/.", "\n_", "/_", "\0")
    return text.isascii() and text.count("\n") == len(names) + 1 and not any(part in text for part in odd)


def contained(context: StageContext, facts: list[Fact], source: StorePath) -> list[Fact]:
    """Returns the facts, or raises `RecordError` if one is outside the destination and the given roots."""
    # A driver acts on every fact, so a forged one must lead it neither elsewhere nor into a job's directory (G10).
    if not facts or are_plain([fact.path for fact in facts]):
        return facts
    for fact in facts:
        _check_contained(context, fact, source)
    return facts


def _check_contained(context: StageContext, fact: Fact, source: StorePath) -> None:
    roots = context.layout.roots
    try:
        if fact.kind == "identity" or (fact.kind in ("directory", "blocking") and fact.path in roots):
            return
        if fact.kind == "superseded":
            check_superseded(context.layout, fact.path)
        else:
            check_destination_name(fact.path, roots)
    except InvalidPathError as error:
        raise RecordError(
            f"a side file of the decision names {fact.path!r}: {error.message}",
            field="path",
            path=source,
            next_step=f"find out who writes into the job's directory; {context.abandon_advice()}",
        ) from error


FACTS_A_FILE: Final = 25_000
"""Facts per side file: some 100 bytes each there, three times as much in memory."""

FACTS_IN_MEMORY: Final = 50_000
"""Facts kept in memory; more are spilled to the driver's disk, encoded as in side files."""


class Lines(NamedTuple):
    """The encoded content of a side file and its number of facts."""

    data: bytes
    facts: int


class NotedFacts(Facts):
    """A growable collection of facts that spills to the driver's disk; call `close` at the end."""

    def __init__(self) -> None:
        self.count: int = 0
        self.of_directories: int = 0
        self.within: set[str] = set()
        self._facts: list[Fact] = []
        self._spill: SpillFile[Lines] | None = None
        self._writing = asyncio.Lock()

    @property
    def in_memory(self) -> list[Fact] | None:
        """The facts if they are all in memory, else None."""
        return self._facts if self._spill is None else None

    async def directories(self) -> set[str]:
        """Returns `within`."""
        return self.within

    async def add(self, facts: list[Fact], directories: AbstractSet[str] = frozenset()) -> None:
        """Adds facts, and their parent directories if the caller wants `directories`."""
        self._facts += facts
        self.count += len(facts)
        self.of_directories += count_directories(facts)
        self.within |= directories
        if self._spill is None and len(self._facts) > FACTS_IN_MEMORY:
            self._spill = SpillFile(Lines)
        if self._spill is None or len(self._facts) < FACTS_A_FILE:
            return
        # Producers wait while one of them writes, so that memory does not grow faster than the disk takes it.
        async with self._writing:
            while len(self._facts) >= FACTS_A_FILE:
                some, self._facts = self._facts[:FACTS_A_FILE], self._facts[FACTS_A_FILE:]
                await self._spill.append(Lines(encode_facts(some), len(some)))

    async def lines(self) -> AsyncIterator[Lines]:
        """Yields the content of the side files, one file at a time."""
        if self._spill is not None:
            async for lines in self._spill.read():
                yield lines
        for start in range(0, len(self._facts), FACTS_A_FILE):
            some = self._facts[start : start + FACTS_A_FILE]
            yield Lines(encode_facts(some), len(some))

    async def batches(self) -> AsyncIterator[list[Fact]]:
        """Yields the facts of one side file at a time."""
        if self._spill is not None:
            async for lines in self._spill.read():
                yield decode_facts(lines.data, source="a temporary file")
        if self._facts:
            yield self._facts

    async def close(self) -> None:
        """Frees memory and disk. Safe to call twice."""
        spill, self._spill, self._facts = self._spill, None, []
        self.count = 0
        if spill is not None:
            await spill.close()
