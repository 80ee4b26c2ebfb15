"""A recoverer that looks at a job which its living driver ends and cleans up at that moment."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobNotFoundError
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.neighbours.meeting import Connection, Table


@pytest.mark.parametrize("profile", ["local", "adls", "s3"])
async def test_what_a_store_can_do_is_tried_only_where_a_trial_leaves_nothing(profile: str) -> None:
    """Where a write makes its parents, the trial of a recoverer would make the directory of the job again."""
    table = Table(profile)
    party = await table.job("job", {"p=1/a": b"a"}, CommitterConfig(io_concurrency=1))
    party.store.faults.append(Fault(kind="crash_before", operation="put", path="outcome"))
    with pytest.raises(SimulatedCrash):
        await party.commit()
    recoverer = Connection(table.space)
    probed: list[str] = []

    async def before(call: Call) -> None:
        if call.operation == "probe":
            probed.append(str(call.path))
            recoverer.before_call = None
            await committer.recover(table.dest, "job", storage_options=table.options)

    recoverer.before_call = before
    try:
        await committer.recover(table.dest, "job", storage_options={"store": recoverer})
    except JobNotFoundError:
        assert probed
    assert bool(probed) == (profile == "local")
    assert table.files() == {"p=1/a": b"a"}
    assert table.temporary() == set()
