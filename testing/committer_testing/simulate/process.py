"""A process of the simulated cluster: its connection to the store, and what befalls it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

from committer.errors import (
    CommitterError,
    StoreError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StorePreconditionError,
)
from committer.paths import StorePath
from committer.stores.base import FileStatus
from committer.stores.forwarding import Operation
from committer.stores.uploads import PendingUpload
from committer.testing.faults import Call, Fault, FaultyStore
from committer_testing.simulate.late import Caller
from committer_testing.simulate.ledger import Attempt
from committer_testing.simulate.rules import Rules
from committer_testing.simulate.run import Run
from committer_testing.simulate.scenario import FAULTS, Trouble

T = TypeVar("T")

_QUICKEST_S = 0.001
_LATENCY_S = 0.03
_SLOW_S = 15.0
_UNANSWERED_S = 3.0
_LATE_S = 4.0


class Process(FaultyStore):
    """One process: every call of its waits a latency of its own and may meet a fault, both drawn from the seed.

    What call number n of a process meets depends on nothing but seed, process and n, so that a run can be repeated
    with one fault less. One that starts when the run is healing meets no faults.

    Args:
        name: Its name in the history.
        run: The run, which knows it from now on.
        job_id: The job it may touch; None for an operator's, which may touch any.
        setup: The job of the run that it works for; empty for an operator's.

    Attributes:
        attempt: The task attempt it runs, if any.
        freezes_at: The number of the call before which it stands still.
        freezes_s: For how long, in virtual seconds.
        frozen_until: When it goes on again.
        partitioned_until: When the store can be reached again.
        cancel: Cancels what the process runs; None where nothing does.
    """

    def __init__(self, name: str, run: Run, *, job_id: str | None = None, setup: str = "") -> None:
        super().__init__(run.world.store(), before_call=self._wait)
        self.name = name
        self.job_id = job_id
        self.attempt: Attempt | None = None
        self.freezes_at: int = 0
        self.freezes_s: float = 0.0
        self.frozen_until: float = 0.0
        self.partitioned_until: float = 0.0
        self.cancel: Callable[[], object] | None = None
        caller = Caller(name, job_id, setup, len(run.processes))
        self.after_effect: Callable[[Call], None] | None = lambda call: run.look(caller, call)
        self._run = run
        find = partial(run.find_broken_rule, name)
        self._rules = Rules(run.world, find) if run.by_the_rules else None
        # What the puts hold that are about to set out, by path.
        self._data: dict[StorePath, bytes] = {}
        self._calm = run.healing
        self._draw = random.Random(f"{run.scenario.seed} {name}")
        self._coming: dict[int, Fault] = {}
        self._forbidden: set[tuple[str, StorePath]] = set()
        run.processes.append(self)

    @property
    def endpoint(self) -> str:
        """The inner store's, with limits that no other process shares."""
        return f"{self.inner.endpoint}#{self.name}"

    def fault_for(self, call: Call) -> Fault | None:
        """What was drawn for the call when it set out; what was forbidden once stays so."""
        coming = self._coming.pop(call.number, None)
        if coming is None and (call.operation, call.path) in self._forbidden:
            return Fault(kind="forbidden", times=1)
        return coming

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """One call, whose content the rules see."""
        self._data[path] = data
        return await super().put(path, data, exclusive=exclusive, temporary=temporary, durable=durable)

    async def replace_file(self, path: StorePath, data: bytes, *, seen: FileStatus) -> FileStatus:
        """One call, whose content the rules see."""
        self._data[path] = data
        return await super().replace_file(path, data, seen=seen)

    async def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        """One listing; MinIO lists uploads by the exact name of an object only (minio/minio#20989)."""
        async for upload in super().list_uploads(directory):
            if self._run.scenario.kind != "minio" or upload.path == directory:
                yield upload

    async def delete_files(self, files: Mapping[StorePath, str | None]) -> Mapping[StorePath, StoreError]:
        """One call; the rules see each of its files."""
        if self._rules is not None:
            for path in files:
                self._rules.sends("delete_files", path, None, None)
        return await super().delete_files(files)

    async def run(
        self, operation: str, effect: Callable[[], Awaitable[T]], path: StorePath, destination: StorePath | None = None
    ) -> T:
        """One call, held against the rules where it sets out; its answer is what the process knows."""
        if self._rules is None:
            return await super().run(operation, effect, path, destination)
        data = self._data.pop(path, None)
        self._rules.sends(operation, path, destination, data)
        try:
            answer = await super().run(operation, effect, path, destination)
        except CommitterError as error:
            self._rules.answered(operation, path, destination, data, error)
            raise
        self._rules.answered(operation, path, destination, data, answer)
        return answer

    async def stream(
        self, operation: Operation, entries: Callable[[], AsyncIterator[T]], path: StorePath
    ) -> AsyncIterator[T]:
        """One call; what it showed is what the process knows."""
        names: list[str] = []
        try:
            async for entry in super().stream(operation, entries, path):
                if isinstance(entry, FileStatus):
                    names.append(entry.path.name)
                yield entry
        except (StoreNotFoundError, StoreNotADirectoryError):
            if self._rules is not None:
                self._rules.listed(path, [])
            raise
        if self._rules is not None:
            self._rules.listed(path, names)

    async def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool = False,
        identity: str | None = None,
        version: str | None = None,
    ) -> None:
        """Renames the source of this version, or else of this generation, by one call that may arrive late.

        Where the store refuses a version, it looks: a call of its own, which a first one that arrives late does not
        bring.
        """
        world = self._run.world
        if replace or not self.capabilities.versions:
            version = None
        bound = world.generation(source)

        async def effect() -> None:
            now = world.generation(source)
            if version is not None and now is not None and now.version != version:
                raise StorePreconditionError("the source has another version", operation="rename_file", path=source)
            if version is None and bound is not None and now is not None and now is not bound:
                raise StorePreconditionError("the source is another generation", operation="rename_file", path=source)
            # A version that is met proves the file.
            proof = identity if version is None else None
            await self.inner.rename_file(source, destination, replace=replace, identity=proof)

        try:
            await self.run("rename_file", effect, source, destination)
        except (StorePreconditionError, StoreExistsError):
            if version is None or identity is None:
                # Nothing but the version proves the file.
                raise
            await self.rename_file(source, destination, identity=identity)

    async def _wait(self, call: Call) -> None:
        """The way to the store."""
        loop = asyncio.get_running_loop()
        draw = self._draw.random
        latency, chance, which, later = draw(), draw(), draw(), draw()
        self._run.count(self.name, call)
        if call.number == self.freezes_at:
            self.frozen_until = loop.time() + self.freezes_s
        if self.frozen_until > loop.time():
            await asyncio.sleep(self.frozen_until - loop.time())
        trouble = self._trouble(call, chance, which)
        if trouble is None and loop.time() < self.partitioned_until and not self._is_left_out(call):
            trouble = "unanswered" if which < 0.5 else "lost"
        if trouble is not None:
            self._run.meet(self.name, call, trouble)
        await asyncio.sleep(_QUICKEST_S + latency * _LATENCY_S)
        if trouble == "slow":
            await asyncio.sleep(later * _SLOW_S)
        elif trouble == "cancel":
            if self.cancel is not None:
                self.cancel()
        elif trouble is not None:
            if trouble in {"unanswered", "late"}:
                await asyncio.sleep(_UNANSWERED_S * which)
            if trouble in {"late", "again"} and self.attempt is not None:
                self.attempt.repeated = True
            if trouble == "forbidden":
                self._forbidden.add((call.operation, call.path))
            self._coming[call.number] = Fault(kind=trouble, delay_s=later * _LATE_S, times=1)
        self._run.arrive(self.name, call)

    def _trouble(self, call: Call, chance: float, which: float) -> Trouble | None:
        scenario = self._run.scenario
        if self._calm:
            return None
        if scenario.forced is not None:
            return scenario.forced.get((self.name, call.number))
        if chance >= scenario.fault_rate or self._is_left_out(call):
            return None
        return FAULTS[int(which * len(FAULTS))]

    def _is_left_out(self, call: Call) -> bool:
        return (self.name, call.number) in self._run.scenario.without
