"""Facts that stand in the order of a job's files, one by one."""

from __future__ import annotations

from collections.abc import Iterator

from committer.errors import RecordError
from committer.records.job_state import Fact
from committer.stages.decided_facts import Facts


class Turns:
    """Facts one by one."""

    def __init__(self, facts: Facts) -> None:
        self._batches = facts.batches()
        self._facts: Iterator[Fact] = iter(())

    async def next(self) -> Fact | None:
        """The next one; None after the last."""
        fact = next(self._facts, None)
        while fact is None:
            some = await anext(self._batches, None)
            if some is None:
                return None
            self._facts = iter(some)
            fact = next(self._facts, None)
        return fact


def out_of_turn(what: str) -> RecordError:
    """The error where they do not stand in that order."""
    return RecordError(
        f"the decision's side files {what}",
        field="path",
        operation="job_stage_load_manifests",
        outcome="unknown",
        next_step="find out who writes into the job's directory",
    )
