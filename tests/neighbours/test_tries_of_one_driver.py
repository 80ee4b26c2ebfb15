"""`file-v2` with `commit_attempts`: a request of an earlier try that arrives late must not meet what a later one wrote."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, StoreOutcomeUnknownError
from committer.testing.faults import Fault
from tests.neighbours.ending import Steps
from tests.neighbours.meeting import Connection, Party, Table, is_record
from tests.neighbours.test_intent_of_two_drivers import OLD, REPLACE, decides

Effect = Callable[[], Awaitable[object]]


class LateWithdrawal(Connection):
    """A connection that loses the answer to the first delete of a joined driver's intent, which arrives when told."""

    effect: Effect | None = None

    async def run(self, operation, effect, path, destination=None):
        if self.effect is None and operation == "delete_file" and path.name.startswith("intent-"):
            self.effect = effect
            raise StoreOutcomeUnknownError("the answer was lost", operation=operation, path=path)
        return await super().run(operation, effect, path, destination)


@pytest.mark.parametrize("attempts", [1, 2])
async def test_replacing_job_sees_the_later_try_of_a_driver(attempts: int) -> None:
    """One driver of the job withdraws; the other, whose first try withdrew late, is about to decide.

    The second try is made by the committer, and by the caller.
    """
    table = Table("hdfs", OLD)
    config = CommitterConfig(io_concurrency=1, commit_attempts=attempts)
    job = await committer.open_job(
        table.dest, job_id="append", committer="file-v2", config=config, storage_options=table.options
    )
    async with committer.open_task(job.spec, task=0, storage_options=table.options) as task:
        async with task.open("p=1/new") as file:
            await file.write(b"new")
    stores = Connection(table.space), LateWithdrawal(table.space)
    one, two = [
        Party(await committer.attach_job(job.spec, storage_options={"store": store}), store, None) for store in stores
    ]
    withdrawing = await Steps(one).until(lambda call: call.operation == "read" and is_record(call.path))
    one.store.faults.append(Fault(kind="forbidden", operation="read", path=is_record, times=attempts))
    two.store.faults.append(Fault(kind="forbidden", operation="read", path=is_record))
    if attempts == 1:
        await two.commit()
        assert two.error is not None
    deciding = await Steps(two).until(decides)
    effect = stores[1].effect
    assert effect is not None
    with suppress(CommitterError):
        await effect()
    await withdrawing.to_the_end()
    assert one.error is not None
    replace = await table.job("replace", {"p=1/replaced": b"r"}, REPLACE)
    await replace.commit()
    assert replace.busy
    await deciding.to_the_end()
    assert two.error is None
    assert table.files() == {**OLD, "p=1/new": b"new"}
