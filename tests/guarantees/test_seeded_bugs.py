"""The checker is put to the test itself: with a bug planted in the engine it must fail, without it must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from committer import CommitterConfig
from committer.committers import deciding
from committer.errors import StoreNotFoundError
from committer.layout import MANIFEST_SUFFIX
from committer.stages.load_records import RecordRef
from committer.stages.publish import PublishFiles
from committer.stages.success_file import SaveSuccess, success_data
from committer.stages.validate_output import ValidateOutput
from committer.testing.simulate.worlds import OUT
from tests.guarantees.cluster import Cluster, Plan, Trouble
from tests.guarantees.conftest import Tally
from tests.guarantees.outcomes import drive, zombie
from tests.guarantees.sweeps import memory, sweep
from tests.guarantees.test_endings import then_rolled_back
from tests.guarantees.test_faults import then_recovered

# -- the bugs -------------------------------------------------------------------------------------------------------


def success_before_validation(patch: pytest.MonkeyPatch) -> None:
    """`_SUCCESS` is written before the output is validated, and so before the outcome (Hadoop does)."""
    validate = ValidateOutput.execute

    async def execute(self, value):
        published = value[1]
        marker = success_data(self.context, success=True, published=published, stage="seeded")
        await SaveSuccess(self.context).run(marker)
        await validate(self, value)

    patch.setattr(ValidateOutput, "execute", execute)


def blind_retry_that_replaces(patch: pytest.MonkeyPatch) -> None:
    """A rename that failed is sent again without looking, over whatever stands there; a missing source is fine."""

    async def settle(self, file, source, target, error):
        try:
            await self.context.store.rename_file(source, target, replace=True, identity=file.identity)
        except StoreNotFoundError:
            return

    patch.setattr(PublishFiles, "_settle", settle)


def blind_retry_that_fails(patch: pytest.MonkeyPatch) -> None:
    """A rename whose answer was lost is sent again without looking; that its source is gone by now is an error."""

    async def settle(self, file, source, target, error):
        await self.context.store.rename_file(source, target, identity=file.identity)

    patch.setattr(PublishFiles, "_settle", settle)


def listing_in_place_of_messages(patch: pytest.MonkeyPatch) -> None:
    """The records found in `attempts/` win, the last of each task, whatever the messages say."""

    async def find_refs(context, task_commits, tasks, *, freeze):
        last: dict[str, str] = {}
        async for child in context.store.list(context.layout.attempts):
            name = child.path.name
            if name.endswith(MANIFEST_SUFFIX):
                task = name.partition("-")[0].rpartition("_")[0]
                last[task] = max(name, last.get(task, ""))
        return [
            RecordRef((context.layout.attempts / name).relative_to(context.layout.job_directory))
            for name in last.values()
        ]

    patch.setattr(deciding, "find_refs", find_refs)


# -- what finds them ------------------------------------------------------------------------------------------------


async def vandal(cluster: Cluster) -> None:
    """Another program deletes a published file when it is about to be validated."""
    call = cluster.hit
    assert call is not None
    name = str(call.path).removeprefix(f"{cluster.world.destination}/")
    files = {name for attempt in cluster.ledger.attempts for name in attempt.files}
    if call.operation == "status" and name in files and f"{OUT}/{name}" in cluster.world.files():
        cluster.world.remove(f"{OUT}/{name}")


async def neighbour(cluster: Cluster) -> None:
    """Another program publishes a file under a name of this job, where that is free."""
    name = cluster.plan.names(0)[0]
    if f"{OUT}/{name}" not in cluster.world.files():
        cluster.checker.adopt(name, b"another job's")


async def driven(cluster: Cluster) -> str:
    """The driver alone; what is missing was deleted by another program, so that no recoverer can end the job."""
    error = await drive(cluster)
    cluster.checker.step()
    return "committed" if error is None else "unknown"


@dataclass(frozen=True)
class Hunt:
    """One bug, and a sweep that must find it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    plan: Plan
    trouble: Trouble
    ordeal: Callable
    finding: str


HUNTS = {
    "_SUCCESS before validation": Hunt(
        success_before_validation,
        Plan(config=CommitterConfig(validate_output=True)),
        vandal,
        driven,
        "G9: _SUCCESS of j1 stands before its outcome",
    ),
    "_SUCCESS before the outcome": Hunt(
        success_before_validation, Plan(delivery="message"), "crash_after", then_rolled_back, "G9: _SUCCESS"
    ),
    "blind retry that replaces": Hunt(
        blind_retry_that_replaces, Plan(), neighbour, then_recovered, "G14: .* was overwritten"
    ),
    "blind retry that fails": Hunt(blind_retry_that_fails, Plan(), "lost", then_recovered, "nothing is there"),
    "listing in place of messages": Hunt(
        listing_in_place_of_messages, Plan(delivery="message"), zombie, then_recovered, "G2: .* no attempt that may win"
    ),
}


@pytest.mark.parametrize("hunt", HUNTS.values(), ids=HUNTS)
async def test_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    async def sweep_all() -> None:
        await sweep(memory("local"), hunt.plan, (hunt.trouble,), hunt.ordeal, Tally(), commit_only=True)

    await sweep_all()
    hunt.plant(monkeypatch)
    with pytest.raises(AssertionError, match=hunt.finding):
        await sweep_all()
