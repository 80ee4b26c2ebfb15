"""A driver moves an old file aside when its job was rolled back and cleaned up, where no fence keeps such a call out.

So many old files that the decision's side files list them: these are gone by then.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.few_facts import list_in_side_files
from tests.neighbours.meeting import Connection, Table

OLD = {f"p=1/old-{number}": b"old" for number in range(6)}


@pytest.fixture(autouse=True)
def _low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    list_in_side_files(monkeypatch)


def moves_an_old_file(call: Call) -> bool:
    """Whether a call moves a file aside."""
    return call.operation == "rename_file" and call.destination is not None and "/superseded/" in str(call.destination)


@pytest.mark.parametrize("driver", ["decided", "recovers"])
@pytest.mark.parametrize("late", range(len(OLD)))
async def test_what_it_moved_is_put_back(late: int, driver: str) -> None:
    table = Table("gcs", OLD)
    party = await table.job("past", {"p=1/new": b"new"}, CommitterConfig(io_concurrency=1, conflict_mode="replace"))
    store = party.store
    if driver == "recovers":
        store.faults.append(Fault(kind="crash_before", operation="rename_file"))
        with pytest.raises(SimulatedCrash):
            await party.commit()
        store = Connection(table.space)
    moves = 0

    async def before(call: Call) -> None:
        nonlocal moves
        if moves_an_old_file(call):
            moves += 1
            if moves == late + 1:
                await committer.recover(
                    table.dest, "past", rollback=True, force=True, storage_options={"store": Connection(table.space)}
                )

    store.before_call = before
    if driver == "recovers":
        with suppress(CommitterError):
            await committer.recover(table.dest, "past", storage_options={"store": store})
    else:
        await party.commit()
        assert party.report is None
    assert moves > late
    assert table.files() == OLD
