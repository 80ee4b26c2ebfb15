"""A process of the simulated cluster: its connection to the store, and what befalls it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from committer.errors import StorePreconditionError
from committer.paths import StorePath
from committer.stores.base import Store
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from committer.testing.simulate.ledger import Attempt
from committer.testing.simulate.scenario import FAULTS, Trouble

if TYPE_CHECKING:
    from committer.testing.simulate.simulation import Simulation

_QUICKEST_S = 0.001
_LATENCY_S = 0.03
_SLOW_S = 15.0
_UNANSWERED_S = 3.0
_LATE_S = 4.0


class Process(FaultyStore):
    """One process: every call of its waits a latency of its own and may meet a fault, both drawn from the seed.

    What call number n of a process meets depends on nothing but seed, process and n, so that a run can be repeated
    with one fault less.

    Args:
        name: Its name in the history.
        simulation: The run.
        inner: The store itself.
        job_id: The job it may touch; None for an operator's, which may touch any.
        calm: Whether it meets no faults.

    Attributes:
        attempt: The task attempt it runs, if any.
        freezes_at: The number of the call before which it stands still.
        freezes_s: For how long, in virtual seconds.
        frozen_until: When it goes on again.
        partitioned_until: When the store can be reached again.
    """

    def __init__(
        self, name: str, simulation: Simulation, inner: Store, *, job_id: str | None = None, calm: bool = False
    ) -> None:
        super().__init__(inner, before_call=self._wait)
        self.name = name
        self.job_id = job_id
        self.attempt: Attempt | None = None
        self.freezes_at: int = 0
        self.freezes_s: float = 0.0
        self.frozen_until: float = 0.0
        self.partitioned_until: float = 0.0
        self.after_effect: Callable[[Call], None] | None = lambda call: simulation.look(self, call)
        self._simulation = simulation
        self._calm = calm
        self._draw = random.Random(f"{simulation.scenario.seed} {name}")
        self._coming: dict[int, Fault] = {}

    @property
    def endpoint(self) -> str:
        """The inner store's, with limits that no other process shares."""
        return f"{self.inner.endpoint}#{self.name}"

    def fault_for(self, call: Call) -> Fault | None:
        """What was drawn for the call when it set out."""
        return self._coming.pop(call.number, None)

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """One call, bound to the generation of its source where there is one, however late it arrives."""
        world = self._simulation.world
        bound = world.generation(source)

        async def effect() -> None:
            now = world.generation(source)
            if bound is not None and now is not None and now is not bound:
                raise StorePreconditionError("the source is another generation", operation="rename_file", path=source)
            await self.inner.rename_file(source, destination, replace=replace, identity=identity)

        await self.run("rename_file", effect, source, destination)

    async def _wait(self, call: Call) -> None:
        """The way to the store."""
        loop = asyncio.get_running_loop()
        latency, chance, which, later = (self._draw.random() for _ in range(4))
        self._simulation.count(self, call)
        if call.number == self.freezes_at:
            self.frozen_until = loop.time() + self.freezes_s
        if self.frozen_until > loop.time():
            await asyncio.sleep(self.frozen_until - loop.time())
        trouble = self._trouble(call, chance, which)
        if trouble is None and loop.time() < self.partitioned_until and not self._is_left_out(call):
            trouble = "unanswered" if which < 0.5 else "lost"
        if trouble is not None:
            self._simulation.meet(self, call, trouble)
        await asyncio.sleep(_QUICKEST_S + latency * _LATENCY_S)
        if trouble == "slow":
            await asyncio.sleep(later * _SLOW_S)
        elif trouble is not None:
            if trouble in {"unanswered", "late"}:
                await asyncio.sleep(_UNANSWERED_S * which)
            if trouble in {"late", "again"} and self.attempt is not None:
                self.attempt.repeated = True
            self._coming[call.number] = Fault(kind=trouble, delay_s=later * _LATE_S, times=1)
        self._simulation.arrive(self, call)

    def _trouble(self, call: Call, chance: float, which: float) -> Trouble | None:
        scenario = self._simulation.scenario
        if self._calm:
            return None
        if scenario.forced is not None:
            return scenario.forced.get((self.name, call.number))
        if chance >= scenario.fault_rate or self._is_left_out(call):
            return None
        return FAULTS[int(which * len(FAULTS))]

    def _is_left_out(self, call: Call) -> bool:
        return (self.name, call.number) in self._simulation.scenario.without


def is_crash(error: BaseException) -> bool:
    """Whether a process died of it."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_crash(inner) for inner in error.exceptions)
    return isinstance(error, SimulatedCrash)
