"""Many jobs end at once: a driver whose conditional put of `_SUCCESS` finds another job's marker tries again, after a wait."""

from __future__ import annotations

import pytest

from committer.errors import StorePreconditionError
from committer.records.success import SuccessData, decode_success, encode_success
from committer.testing.faults import Call
from committer.testing.virtual_time import virtual_loop
from tests.neighbours.meeting import Table, writes_success


@pytest.mark.parametrize("profile", ["gcs", "s3"])
@pytest.mark.parametrize("lost", [12, 29, 30])
def test_a_commit_goes_on_after_lost_races(profile: str, lost: int) -> None:
    async def commit() -> tuple[float, int]:
        table = Table(profile)
        party = await table.job("late", {"p=0/part": b"x"})
        races = 0

        async def another_is_first(call: Call) -> None:
            nonlocal races
            if writes_success(call) and races < lost:
                races += 1
                table.write("_SUCCESS", encode_success(SuccessData(success=True, jobId=f"other-{races}")))

        party.store.before_call = another_is_first
        began = loop.time()
        await party.commit()
        took = loop.time() - began
        if lost < 30:
            assert party.error is None, party.error
            assert decode_success(table.all_files()["_SUCCESS"], source="_SUCCESS").jobId == "late"
            assert table.temporary() == set()
        else:
            assert isinstance(party.error, StorePreconditionError)
            assert party.error.outcome == "committed"
        return took, races

    with virtual_loop() as loop:
        took, races = loop.run_until_complete(commit())
    assert races == lost
    assert 0.0 < took < 60.0
