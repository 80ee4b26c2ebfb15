"""A replacing driver that dies while its entry stands, at any call: who is kept out, and what lets them in again."""

from __future__ import annotations

from contextlib import suppress

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobDecidedError, JobNotFoundError, JobStateError
from committer.testing.faults import Fault, SimulatedCrash
from tests.job_paths import entries_at, has_in_job
from tests.neighbours.meeting import Table
from tests.sweeps import Share

OLD = {"p=1/old-0": b"old", "p=1/old-1": b"old", "p=2/old": b"old"}
REPLACING = {"p=1/new-0": b"new", "p=1/new-1": b"new"}
REPLACED = {"p=2/old": b"old", **REPLACING}
APPENDED = {"p=1/appended": b"a"}
REPLACE = CommitterConfig(io_concurrency=1, conflict_mode="replace")

PROFILES = pytest.mark.parametrize("profile", ["local", "gcs", "s3"])


async def end(table: Table, how: str, *, decided: bool, ended: bool) -> None:
    """Ends the dead job in one of the ways that delete its entry; what is refused is refused, and recovered."""
    options = table.options
    if how == "rollback":
        if not ended:
            await committer.recover(table.dest, "dead", rollback=True, force=True, storage_options=options)
            return
        with pytest.raises(JobStateError):
            await committer.recover(table.dest, "dead", rollback=True, force=True, storage_options=options)
    elif how == "abort":
        async with committer.attach_job(table.dest, job_id="dead", storage_options=options) as dead:
            if not decided:
                await dead.abort()
                return
            if ended:
                await dead.abort()
            else:
                with pytest.raises(JobDecidedError):
                    await dead.abort()
        assert entries_at(table)
    elif how == "cleanup":
        if decided:
            # Ended or not: `_SUCCESS` is still to come.
            with pytest.raises(JobDecidedError):
                await committer.cleanup(table.dest, job_id="dead", storage_options=options)
            assert entries_at(table)
        await committer.cleanup(table.dest, job_id="dead", force=decided, storage_options=options)
        return
    await committer.recover(table.dest, "dead", storage_options=options)


@pytest.mark.parametrize(("profile", "delivery"), [("local", "listing"), ("gcs", "message")])
@pytest.mark.parametrize("how", ["recover", "rollback", "abort", "cleanup"])
async def test_driver_that_dies_at_every_call_with_an_entry(
    profile: str, delivery: str, how: str, share: Share
) -> None:
    seen: set[str] = set()
    for number in share.counted():
        table = Table(profile, OLD)
        party = await table.job("dead", REPLACING, REPLACE, delivery)
        party.store.faults.append(Fault(kind="crash_before", call=number))
        try:
            await party.commit()
        except SimulatedCrash:
            pass
        else:
            break
        if not (entries_at(table) and has_in_job(table, "dead", "setup")):
            continue
        decided = has_in_job(table, "dead", "decision")
        ended = has_in_job(table, "dead", "outcome")
        seen.add("ended" if ended else "decided" if decided else "undecided")
        other = await table.job("other", APPENDED)
        await other.commit()
        assert other.busy, (number, other.error)
        assert other.error is not None
        assert other.error.owner == "dead"  # type: ignore[attr-defined]
        assert other.error.outcome == "unchanged"
        assert "p=1/appended" not in table.files()

        await end(table, how, decided=decided, ended=ended)
        assert not entries_at(table), number
        if how == "recover" or ended or (decided and how == "abort"):
            assert table.files() == REPLACED, number
        elif not decided or how == "rollback":
            assert table.files() == OLD, number
        await other.commit()
        assert other.error is None, (number, other.error)
        assert table.files()["p=1/appended"] == b"a"
        assert table.temporary() == set(), number
    share.check_seen(seen, {"undecided", "decided", "ended"})


@PROFILES
@pytest.mark.parametrize("how", ["rollback", "abort", "cleanup"])
async def test_abort_that_dies_too_can_be_done_again(profile: str, how: str, share: Share) -> None:
    """The process that ends the dead job may die while it does so: what it leaves blocks no other job."""
    for number in share.counted():
        table = Table(profile, OLD)
        party = await table.job("dead", REPLACING, REPLACE)
        party.store.faults.append(Fault(kind="crash_before", operation="put", path="decision"))
        with pytest.raises(SimulatedCrash):
            await party.commit()
        killer = table.options["store"]
        killer.faults.append(Fault(kind="crash_before", call=number))  # type: ignore[attr-defined]
        try:
            await committer.recover(table.dest, "dead", rollback=True, storage_options={"store": killer})
            crashed = False
        except SimulatedCrash:
            crashed = True
        if crashed:
            # Of a removal that was begun nothing may be left that names the job. Its entry blocks no other then.
            with suppress(JobNotFoundError):
                await end(table, how, decided=False, ended=False)
        assert table.files() == OLD, number
        other = await table.job("other", APPENDED, REPLACE)
        await other.commit()
        assert other.error is None, (number, other.error)
        assert table.files() == {"p=2/old": b"old", **APPENDED}
        await committer.cleanup(table.dest, older_than=0, storage_options=table.options)
        assert table.temporary() == set(), number
        if not crashed:
            break
