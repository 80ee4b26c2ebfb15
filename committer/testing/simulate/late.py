"""What is late for a job: calls that go by a name, and were meant for an earlier setup of its id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from committer.records.job_state import JobSetup, decode_record
from committer.testing.faults import Call
from committer.testing.simulate.watch import JobWatch
from committer.testing.simulate.worlds import World

_RECORDS = ("/manifests/", "/job-")


@dataclass(frozen=True)
class Caller:
    """The process that makes a call.

    Attributes:
        name: The process.
        job_id: The id of the job that it may touch; None for any.
        setup: The job of the run that it works for; empty for an operator.
        number: How many processes began before it.
    """

    name: str
    job_id: str | None
    setup: str
    number: int


class LateCalls:
    """Knows which setup of an id stands, and notes what an earlier one's processes do to it.

    That is what docs/protocol.md says remains of an id that is set up anew: a task attempt that stopped within its task
    commit replaces a record. The later job may fail then, but nothing wrong may be visible.

    Args:
        world: The channel.
        watches: The jobs of the run, those of one id in the order they are set up in.
    """

    def __init__(self, world: World, watches: Mapping[str, JobWatch]) -> None:
        self._world = world
        self._watches = watches
        self._began: dict[str, int] = {}

    def note(self, caller: Caller, call: Call, processes: int) -> None:
        """A call had its effect.

        Args:
            caller: Who made it.
            call: The call.
            processes: How many processes there are.
        """
        paths = [path.path[1:] for path in (call.path, call.destination) if path is not None]
        self._note_setup(caller, call, paths, processes)
        for job_id, began in self._began.items():
            watch = self._watches[job_id]
            late = caller.setup != job_id and caller.number < began
            watch.disturbed = watch.disturbed or (late and self._replaces_record(watch, caller, paths))

    def _note_setup(self, caller: Caller, call: Call, paths: Sequence[str], processes: int) -> None:
        """Notes of which setup a setup record is that now stands there: a driver's, or an operator's who claimed the id
        of what held no record of a job.
        """
        own = self._watches.get(caller.setup)
        for watch in self._watches.values() if own is None else [own]:
            path = f"{watch.own}setup"
            data = self._world.read(path) if path in paths else None
            if data is None:
                continue
            setup = decode_record(data, JobSetup, source="setup").spec.setup
            if own is None and call.operation.removesuffix(" (late)") == "put":
                watch.claims.add(setup)
            elif own is not None:
                watch.note_setup(setup)
                if watch.setups is not None:
                    self._began.setdefault(caller.setup, processes)

    def _replaces_record(self, watch: JobWatch, caller: Caller, paths: Sequence[str]) -> bool:
        within = (path for path in paths if path.startswith(watch.places))
        return bool(caller.setup) and any(part in path for path in within for part in _RECORDS)
