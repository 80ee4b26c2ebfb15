"""A replacing driver that dies while it holds the lock, at any call: who is kept out, and what lets them in again."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, JobDecidedError, JobStateError
from committer.records.job_state import JobOutcome, decode_record
from committer.testing.faults import Fault, SimulatedCrash
from tests.job_paths import has_in_job, in_job
from tests.neighbours.meeting import Table
from tests.rotation import Share

OLD = {"p=1/old-0": b"old", "p=1/old-1": b"old", "p=2/old": b"old"}
REPLACING = {"p=1/new-0": b"new", "p=1/new-1": b"new"}
REPLACED = {"p=2/old": b"old", **REPLACING}
APPENDED = {"p=1/appended": b"a"}
REPLACE = CommitterConfig(io_concurrency=1, conflict_mode="replace")
LOCK = "_temporary/.replace-lock"

PROFILES = pytest.mark.parametrize("profile", ["local", "gcs", "s3"])


def is_finished(table: Table) -> bool:
    """Whether the dead job's outcome says that nothing but cleaning is left; the lock still stands for a moment."""
    outcome = table.all_files().get(in_job(table, "dead", "outcome"))
    return outcome is not None and decode_record(outcome, JobOutcome, source="").finished


async def end(table: Table, how: str, *, decided: bool, ended: bool) -> None:
    """Ends the dead job in one of the ways that release its lock; what is refused is refused, and recovered."""
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
        # A committed job needs it no longer; it was its driver that died before it gave it back.
        assert (LOCK in table.all_files()) == (not ended)
    elif how == "cleanup":
        unfinished = decided and not is_finished(table)
        if unfinished:
            # Ended or not: `_SUCCESS` is still to come.
            with pytest.raises(JobDecidedError):
                await committer.cleanup(table.dest, job_id="dead", storage_options=options)
            assert LOCK in table.all_files()
        await committer.cleanup(table.dest, job_id="dead", force=unfinished, storage_options=options)
        return
    await committer.recover(table.dest, "dead", storage_options=options)


@pytest.mark.parametrize(("profile", "delivery"), [("local", "listing"), ("gcs", "message")])
@pytest.mark.parametrize("how", ["recover", "rollback", "abort", "cleanup"])
async def test_driver_that_dies_at_every_call_with_the_lock(
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
        if LOCK not in table.all_files():
            continue
        decided = has_in_job(table, "dead", "decision")
        ended = has_in_job(table, "dead", "outcome")
        seen.add("finished" if is_finished(table) else "ended" if ended else "decided" if decided else "undecided")
        other = await table.job("other", APPENDED)
        await other.commit()
        assert other.busy, (number, other.error)
        assert other.error is not None
        assert other.error.owner == "dead"  # type: ignore[attr-defined]
        assert other.error.outcome == "unchanged"
        assert "p=1/appended" not in table.files()

        await end(table, how, decided=decided, ended=ended)
        assert LOCK not in table.all_files(), number
        if how == "recover" or ended or (decided and how == "abort"):
            assert table.files() == REPLACED, number
        elif not decided or how == "rollback":
            assert table.files() == OLD, number
        await other.commit()
        assert other.error is None, (number, other.error)
        assert table.files()["p=1/appended"] == b"a"
        assert table.temporary() == set(), number
    share.check_seen(seen, {"undecided", "decided", "ended", "finished"})


@PROFILES
@pytest.mark.parametrize("how", ["rollback", "abort", "cleanup"])
async def test_abort_that_dies_too_can_be_done_again(profile: str, how: str, share: Share) -> None:
    """The process that ends the dead job may die while it does so: the lock goes with a later try, never before it."""
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
            try:
                await end(table, how, decided=False, ended=False)
            except CommitterError as error:
                # All that says whose job it was may be gone already; then the lock must be too.
                assert isinstance(error, committer.errors.JobNotFoundError), (number, error)
                if table.temporary():
                    # What is left there is of no job that can be found; the error names what deletes it.
                    assert "cleanup(" in error.next_step, (number, error)
                    await committer.cleanup(table.dest, job_id="dead", storage_options=table.options)
        assert LOCK not in table.all_files(), number
        assert table.files() == OLD, number
        other = await table.job("other", APPENDED, REPLACE)
        await other.commit()
        assert other.error is None, (number, other.error)
        assert table.files() == {"p=2/old": b"old", **APPENDED}
        assert table.temporary() == set(), number
        if not crashed:
            break
