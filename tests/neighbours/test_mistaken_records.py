"""A driver that finds an earlier setup's record under its own job's name, and is stopped while it removes it.

Meanwhile its job is over and the id set up anew: the record of that name is the third setup's by then, and stays.
"""

from __future__ import annotations

import pytest

from committer.committers.context import open_context
from committer.errors import CommitterError
from committer.records.job_state import encode_record
from committer.stages.intent import Intent
from committer.stages.other_setup import delete_intent, remove_mistaken
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.neighbours.meeting import Connection, Table

FILES = {"p=1/a": b"1"}
PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])


async def _record_of_an_earlier_setup(profile: str, record: str) -> bytes:
    table = Table(profile)
    party = await table.job("job", FILES)
    party.store.faults.append(Fault(kind="crash_after", operation="put", path=f"/{record}"))
    with pytest.raises(SimulatedCrash):
        await party.commit()
    return table.all_files()[f"_temporary/job/{record}"]


class Stopped:
    """A driver stopped before its call of a number, until its job is over and the id set up anew."""

    def __init__(self, table: Table, spec: object, stopped_at: int, record: str) -> None:
        self.table, self.spec, self.stopped_at, self.record = table, spec, stopped_at, record
        self.store = Connection(table.space)
        self.store.before_call = self._before
        self.over = False

    async def _before(self, call: Call) -> None:
        if call.number == self.stopped_at:
            for place in {name.partition("/")[0] for name in self.table.temporary()}:
                self.table.remove(place)
            await self.table.job("job", FILES)
            self.table.write(f"_temporary/job/{self.record}", b"of the third setup")
            self.over = True

    async def run(self, what: object) -> None:
        context = await open_context(self.spec, self.store, owned=False)
        try:
            await what(context)
        except CommitterError:
            # Whether the call fails does not matter here: what it removed does.
            assert self.over
        finally:
            await context.store.close()


@PROFILES
@pytest.mark.parametrize("record", ["decision", "outcome"])
async def test_record_of_a_third_setup_is_not_removed_as_a_mistaken_one(profile: str, record: str) -> None:
    mistaken = await _record_of_an_earlier_setup(profile, record)
    stopped_at = 0
    while True:
        stopped_at += 1
        table = Table(profile)
        party = await table.job("job", FILES)
        table.write(f"_temporary/job/{record}", mistaken)
        driver = Stopped(table, party.driver.spec, stopped_at, record)
        await driver.run(remove_mistaken)
        if not driver.over:
            assert f"_temporary/job/{record}" not in table.all_files()
            break
        assert table.all_files()[f"_temporary/job/{record}"] == b"of the third setup", stopped_at
    assert stopped_at > 4


@PROFILES
@pytest.mark.parametrize("drivers", ["there", "gone"])
async def test_intent_of_a_third_setup_is_not_withdrawn(profile: str, drivers: str) -> None:
    """Also where the directory that went with the driver's own setup was gone before."""
    stopped_at = 0
    while True:
        stopped_at += 1
        table = Table(profile)
        party = await table.job("job", FILES)
        spec = party.driver.spec
        own = Intent(job_id="job", driver="d", created="2026-01-01T00:00:00Z", setup=spec.setup)
        table.write("_temporary/job/intent", encode_record(own))
        if drivers == "gone" and any(
            name.startswith(f"_temporary/job/drivers-{spec.setup}/") for name in table.all_files()
        ):
            table.remove(f"_temporary/job/drivers-{spec.setup}")
        driver = Stopped(table, spec, stopped_at, "intent")
        await driver.run(delete_intent)
        if not driver.over:
            assert not [name for name in table.all_files() if name.startswith("_temporary/job/intent")]
            break
        assert table.all_files()["_temporary/job/intent"] == b"of the third setup", stopped_at
    assert stopped_at > 2
