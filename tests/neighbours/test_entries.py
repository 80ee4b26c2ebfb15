"""Jobs whose scopes meet exclude each other by their entries; jobs of different partitions do not."""

from __future__ import annotations

from contextlib import suppress

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError
from committer.layout import COMMITTING
from committer.testing.faults import Call, Fault, FaultKind, SimulatedCrash
from tests.job_paths import entries_at, has_in_job
from tests.neighbours.meeting import Party, Table

OLD = {"day=1/old": b"old", "day=2/old": b"old"}
ONE = {"day=1/one": b"1"}
TWO = {"day=2/two": b"2"}
APPEND = CommitterConfig(io_concurrency=1)
DYNAMIC = CommitterConfig(io_concurrency=1, conflict_mode="replace", superseded_scope="partitions")
STATIC = CommitterConfig(io_concurrency=1, conflict_mode="replace", superseded_scope="destination")

PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])


def decides(call: Call) -> bool:
    return call.operation == "put" and call.path.name == "decision"


async def beside(first: Party, second: Party) -> None:
    """Commits the second job while the first one is about to create its decision."""
    done = False

    async def before(call: Call) -> None:
        nonlocal done
        if decides(call) and not done:
            done = True
            await second.commit()

    first.store.before_call = before
    await first.commit()
    first.store.before_call = None
    assert done
    assert first.error is None


@PROFILES
@pytest.mark.parametrize("other", [APPEND, DYNAMIC], ids=["append", "overwrite"])
async def test_jobs_of_different_partitions_commit_at_once(profile: str, other: CommitterConfig) -> None:
    table = Table(profile, OLD)
    first, second = await table.job("first", ONE, DYNAMIC), await table.job("second", TWO, other)
    await beside(first, second)
    assert second.error is None
    kept = {"day=2/old": b"old"} if other is APPEND else {}
    assert table.files() == {**ONE, **TWO, **kept}
    assert table.temporary() == set()


@PROFILES
@pytest.mark.parametrize(
    ("first", "second", "files"),
    [
        (DYNAMIC, DYNAMIC, {"day=1/two": b"2"}),
        (DYNAMIC, APPEND, {"day=1/two": b"2"}),
        (APPEND, DYNAMIC, {"day=1/hour=3/two": b"2"}),
        (STATIC, APPEND, TWO),
        (APPEND, STATIC, TWO),
        (DYNAMIC, STATIC, TWO),
        (STATIC, STATIC, TWO),
        (STATIC, APPEND, {}),
    ],
)
async def test_the_second_of_two_that_meet_is_refused_until_the_first_ended(
    profile: str, first: CommitterConfig, second: CommitterConfig, files: dict[str, bytes]
) -> None:
    table = Table(profile, OLD)
    one, two = await table.job("first", ONE, first), await table.job("second", files, second)
    await beside(one, two)
    assert two.busy
    assert two.error.owners == ("first",)  # type: ignore[union-attr]
    assert two.error.outcome == "unchanged"  # type: ignore[union-attr]
    assert "recover(" in two.error.next_step  # type: ignore[union-attr]
    await two.commit()
    assert two.error is None
    assert files.items() <= table.files().items()
    assert table.temporary() == set()


@PROFILES
async def test_a_driver_that_withdraws_leaves_nothing(profile: str) -> None:
    table = Table(profile, OLD)
    one, two = await table.job("first", ONE, DYNAMIC), await table.job("second", ONE, DYNAMIC)
    await beside(one, two)
    assert two.busy
    assert not entries_at(table)
    assert not [name for name in table.all_files() if "/intent-" in name]


def is_of_entries(call: Call) -> bool:
    """Whether a call creates, lists, reads or deletes entries, or makes or removes their directory."""
    return COMMITTING in (call.path.name, call.path.parent.name)


async def calls_of_entries(profile: str) -> list[Call]:
    table = Table(profile, OLD)
    await (await table.job("other", TWO, DYNAMIC)).driver.close()
    party = await table.job("job", ONE, DYNAMIC)
    await party.commit()
    assert party.error is None
    return [call for call in party.store.calls if is_of_entries(call)]


@PROFILES
@pytest.mark.parametrize("kind", ["unavailable", "lost", "crash_before", "crash_after"])
async def test_a_fault_at_each_call_of_an_entry(profile: str, kind: FaultKind) -> None:
    """Before its effect, after it, and a crash on either side: the job commits, or is undecided and commits again."""
    calls = await calls_of_entries(profile)
    assert {"put", "list", "delete_file"} <= {call.operation for call in calls}
    for met in calls:
        table = Table(profile, OLD)
        party = await table.job("job", ONE, DYNAMIC)
        party.store.faults.append(Fault(kind=kind, call=met.number))
        with suppress(SimulatedCrash):
            await party.commit()
        other = await table.job("other", {"day=1/other": b"o"}, DYNAMIC)
        await other.commit()
        alive = has_in_job(table, "job", "setup")
        decided = has_in_job(table, "job", "decision")
        if other.error is not None:
            assert other.busy
            assert alive
            if kind.startswith("crash") and not decided:
                await committer.recover(table.dest, "job", rollback=True, storage_options=table.options)
            await other.commit()
        assert other.error is None, (met, other.error)
        assert "day=1/other" in table.files()
        if has_in_job(table, "job", "setup"):
            await committer.recover(table.dest, "job", rollback=True, storage_options=table.options)
        await committer.cleanup(table.dest, older_than=0, storage_options=table.options)
        assert table.temporary() == set(), met


@PROFILES
async def test_an_entry_that_stands_before_the_decision_blocks_until_its_job_is_ended(profile: str) -> None:
    table = Table(profile, OLD)
    dead = await table.job("dead", ONE, DYNAMIC)
    dead.store.faults.append(Fault(kind="crash_before", operation="put", path="decision"))
    with pytest.raises(SimulatedCrash):
        await dead.commit()
    met, far = await table.job("met", {"day=1/met": b"m"}), await table.job("far", TWO, DYNAMIC)
    await far.commit()
    assert far.error is None
    await met.commit()
    assert met.busy
    async with committer.attach_job(table.dest, job_id="dead", storage_options=table.options) as job:
        await job.abort()
    await met.commit()
    assert met.error is None
    assert table.files() == {"day=1/old": b"old", "day=1/met": b"m", **TWO}
    assert table.temporary() == set()


@pytest.mark.parametrize("profile", ["local", "gcs"])
async def test_a_commit_whose_entry_was_deleted_by_another_process_is_not_decided(profile: str) -> None:
    table = Table(profile, OLD)
    party = await table.job("job", ONE, DYNAMIC)

    async def before(call: Call) -> None:
        if call.operation == "list" and call.path.name == COMMITTING:
            for name in entries_at(table):
                table.remove(name)

    party.store.before_call = before
    await party.commit()
    assert isinstance(party.error, CommitterError)
    assert party.error.outcome == "unchanged"
    assert table.files() == OLD
