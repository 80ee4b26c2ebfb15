"""Which setups each job of the run made: an id that is set up again has several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from committer.layout import DirectoryName
from committer.testing.faults import Call
from committer_testing.simulate.watch import JobWatch
from committer_testing.simulate.worlds import OUT, TEMPORARY


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


class Setups:
    """Notes the setups that each job's driver makes.

    Args:
        watches: The jobs of the run, those of one id in the order they are set up in.
    """

    def __init__(self, watches: Mapping[str, JobWatch]) -> None:
        self._watches = watches

    def note(self, caller: Caller, call: Call) -> None:
        """A call had its effect."""
        watch = self._watches.get(caller.setup)
        above = f"/{OUT}/{TEMPORARY}/"
        if watch is None or call.path.name != "setup" or not call.path.path.startswith(above):
            return
        name = DirectoryName.of(call.path.path[len(above) :].partition("/")[0])
        if name.job_id == (watch.ledger.shared_id or watch.job_id):
            watch.note_setup(name.setup)
            watch.set_up_late |= call.operation.endswith("(late)")
