"""A driver that finds an earlier setup's record under its own job's name, and is stopped while it removes it.

Meanwhile its job is over and the id set up anew: the record of that name is the third setup's by then, and stays.
"""

from __future__ import annotations

import pytest

from committer.committers.context import open_context
from committer.errors import CommitterError
from committer.paths import StorePath
from committer.records.job_state import encode_record
from committer.stages.intent import Intent
from committer.stages.other_setup import delete_intent, remove_mistaken
from committer.testing.faults import Call, Fault, FaultKind, SimulatedCrash
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


@PROFILES
@pytest.mark.parametrize("record", ["decision", "outcome"])
@pytest.mark.parametrize("drivers", ["there", "gone"])
@pytest.mark.parametrize("kind", ["again", "late"])
async def test_a_request_to_remove_a_mistaken_record_that_comes_late_takes_no_other(
    profile: str, record: str, drivers: str, kind: FaultKind
) -> None:
    """By then a driver of this setup wrote its own, by which others go on. At each call, also without the directory
    that goes with the setup: its driver died before it made that."""
    mistaken = await _record_of_an_earlier_setup(profile, record)
    number = 0
    while True:
        number += 1
        table = Table(profile)
        party = await table.job("job", FILES)
        spec = party.driver.spec
        if drivers == "gone":
            await _delete(table, f"_temporary/job/drivers-{spec.setup}")
        table.write(f"_temporary/job/{record}", mistaken)
        store = Connection(table.space)
        store.faults.append(Fault(kind=kind, call=number, delay_s=0.02))
        context = await open_context(spec, store, owned=False)
        try:
            await remove_mistaken(context)
        except CommitterError:
            assert kind == "late"
        if f"_temporary/job/{record}" not in table.all_files():
            table.write(f"_temporary/job/{record}", b"of this setup")
            for task in list(store.under_way):
                await task
            assert table.all_files().get(f"_temporary/job/{record}") == b"of this setup", store.log()
        else:
            for task in list(store.under_way):
                await task
        calls = store.count()
        await context.store.close()
        if calls < number:
            break
    assert number > 4


async def _delete(table: Table, name: str) -> None:
    store = table.space.store()
    await store.delete_directory(StorePath.of(table.dest) / name, recursive=True)
    await store.close()
