"""Two replacing jobs at once: one waits for the other, whatever it waits with."""

from __future__ import annotations

import asyncio
from itertools import count, product

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, DestinationBusyError, JobUndecidedError
from committer.testing.faults import Fault
from tests.job_paths import entries_at, in_job, unique_id
from tests.neighbours.meeting import Party, Table, crossed, interrupted
from tests.sweeps import Share

OLD = {"p=1/old": b"old"}
FIRST = {"p=1/first": b"1"}
SECOND = {"p=1/second": b"2"}
REPLACE = CommitterConfig(io_concurrency=1, conflict_mode="replace")
OVERWRITE = CommitterConfig(io_concurrency=1, existing_target="replace")

PROFILES = pytest.mark.parametrize("profile", ["local", "adls", "gcs", "s3"])


async def pair(profile: str) -> tuple[Table, Party, Party]:
    table = Table(profile, OLD)
    return table, await table.job("first", FIRST, REPLACE), await table.job("second", SECOND, REPLACE)


async def check(table: Table, first: Party, second: Party) -> str:
    for party, other in ((first, second), (second, first)):
        if party.error is not None:
            assert party.busy, party.error
            assert party.error.owner == other.driver.job_id  # type: ignore[attr-defined]
            assert party.error.outcome == "unchanged"
            assert other.driver.job_id in str(party.error)
    if first.error is None and second.error is None:
        assert table.files() in (FIRST, SECOND)
        word = "in turn"
    elif first.error is None:
        assert table.files() == FIRST
        await second.commit()
        assert second.error is None
        assert table.files() == SECOND
        word = "second withdrew"
    elif second.error is None:
        assert table.files() == SECOND
        await first.commit()
        assert first.error is None
        assert table.files() == FIRST
        word = "first withdrew"
    else:
        assert table.files() == OLD
        await first.commit()
        await second.commit()
        assert first.error is None
        assert second.error is None
        assert table.files() == SECOND
        word = "both withdrew"
    assert table.temporary() == set()
    return word


@PROFILES
async def test_replacer_meets_another_at_every_call(profile: str, share: Share) -> None:
    words: set[str] = set()
    for number in share.counted():
        table, first, second = await pair(profile)
        await interrupted(first, number, second.commit)
        words.add(await check(table, first, second))
        if number > first.calls:
            break
    # One whose entry stands makes the other withdraw, and then goes on itself.
    share.check_seen(words, {"in turn", "second withdrew"})


@pytest.mark.parametrize(
    ("profile", "scope"),
    [("local", "destination"), ("adls", "directories"), ("gcs", "directories"), ("s3", "destination")],
)
async def test_replacers_of_different_partitions(profile: str, scope: str, share: Share) -> None:
    """They do not exclude each other, unless both replace the whole destination; what they replace is replaced whole."""
    old = {"p=1/old": b"old", "p=2/old": b"old", "p=3/old": b"old"}
    ones = {"p=1/first-0": b"1", "p=1/first-1": b"1"}
    twos = {"p=2/second-0": b"2", "p=2/second-1": b"2"}
    config = CommitterConfig(io_concurrency=1, conflict_mode="replace", superseded_scope=scope)  # type: ignore[arg-type]
    both = {"p=3/old": b"old", **ones, **twos}
    seen: set[str] = set()
    for number in share.counted():
        table = Table(profile, old)
        first, second = await table.job("first", ones, config), await table.job("second", twos, config)
        await interrupted(first, number, second.commit)
        assert first.error is None or first.busy, first.error
        assert second.error is None or second.busy, second.error
        if first.error is None and second.error is None:
            assert table.files() in ([both] if scope == "directories" else [ones, twos])
            seen.add("in turn")
        else:
            withdrew, other = (second, first) if second.error is not None else (first, second)
            assert other.error is None
            assert withdrew.error.owner == other.driver.job_id  # type: ignore[union-attr]
            assert withdrew.error.outcome == "unchanged"  # type: ignore[union-attr]
            assert not [name for name in table.files() if withdrew.driver.job_id in name]
            await withdrew.commit()
            assert withdrew.error is None
            last = ones if withdrew is first else twos
            assert table.files() == (both if scope == "directories" else last)
            seen.add("one withdrew")
        assert table.temporary() == set()
        if number > first.calls:
            break
    share.check_seen(seen, {"in turn"} if scope == "directories" else {"in turn", "one withdrew"})
    assert scope == "destination" or seen <= {"in turn"}


@PROFILES
async def test_replacers_crossed_twice_where_it_matters(profile: str, share: Share) -> None:
    words: set[str] = set()
    for at, back_at in share.of([*product(range(2, 14), range(2, 14))]):
        table, first, second = await pair(profile)
        await crossed(first, at, second, back_at)
        words.add(await check(table, first, second))
    assert {"first withdrew", "second withdrew"} & words or not share.is_whole


async def test_two_at_once_as_they_come() -> None:
    for _run in range(20):
        table, first, second = await pair("local")
        await asyncio.gather(first.commit(), second.commit())
        await check(table, first, second)


@PROFILES
async def test_job_that_replaces_same_names_excludes_others_too(profile: str, share: Share) -> None:
    """Whatever exists there: it counts as replacing the directories that it writes."""
    seen: set[str] = set()
    for number in share.counted():
        table = Table(profile, {"p=1/same": b"old"})
        overwrite = await table.job("overwrite", {"p=1/same": b"new"}, OVERWRITE)
        replace = await table.job("replace", FIRST, REPLACE)
        await interrupted(overwrite, number, replace.commit)
        if overwrite.error is None and replace.error is None:
            assert table.files() in (FIRST, {"p=1/same": b"new", **FIRST})
            seen.add("both")
        elif overwrite.error is None:
            assert replace.busy
            assert table.files() == {"p=1/same": b"new"}
            seen.add("replace withdrew")
        else:
            assert overwrite.busy, overwrite.error
            assert table.files() == FIRST
            seen.add("overwrite withdrew")
        if number > overwrite.calls:
            break
    share.check_seen(seen, {"both", "replace withdrew"}, {"overwrite withdrew"})


@PROFILES
async def test_two_jobs_that_overwrite_one_file(profile: str, share: Share) -> None:
    """As if in turn, or one withdraws: never a mixture, never a lost `unknown`."""
    for number in share.counted():
        table = Table(profile, {"p=1/same": b"old", "p=2/same": b"old"})
        names = ("p=1/same", "p=2/same")
        first = await table.job("first", dict.fromkeys(names, b"first"), OVERWRITE)
        second = await table.job("second", dict.fromkeys(names, b"second"), OVERWRITE)
        await interrupted(first, number, second.commit)
        for party in (first, second):
            assert party.error is None or party.busy, party.error
        content = set(table.files().values())
        assert content in ({b"first"}, {b"second"}), (number, table.files())
        if number > first.calls:
            break


@PROFILES
async def test_two_appending_jobs_with_one_name(profile: str) -> None:
    """The first to publish commits; the store refuses the second, which rolls back every file that it published."""
    for number in count(1):
        table = Table(profile)
        first = await table.job("first", {"p=1/same": b"first", "p=1/a": b"first"}, CommitterConfig(io_concurrency=1))
        second = await table.job("second", {"p=1/same": b"second", "p=1/b": b"second"})
        await interrupted(first, number, second.commit)
        committed = [party for party in (first, second) if party.error is None]
        assert len(committed) == 1, (number, first.error, second.error)
        [loser] = [party for party in (first, second) if party.error is not None]
        assert loser.error is not None
        assert loser.error.outcome == "unchanged", loser.error
        winner = committed[0].driver.job_id
        other = "a" if winner == "first" else "b"
        assert table.files() == {"p=1/same": winner.encode(), f"p=1/{other}": winner.encode()}
        await loser.driver.abort()
        assert table.temporary() == set()
        if number > first.calls:
            break


# -- the entry of a dead job --------------------------------------------------------------------------------------


async def dead_replacer(table: Table, where: str) -> None:
    """A replacing driver that died when its entry stood, before or after its decision."""
    party = await table.job("dead", FIRST, REPLACE)
    if where == "undecided":
        # Killed: nothing is tidied up, as if the process were gone.
        party.store.faults.append(Fault(kind="crash_before", operation="put", path="decision"))
    else:
        for operation in ("rename_file", "complete_upload"):
            party.store.faults.append(Fault(kind="crash_before", operation=operation, path="p=1/first"))
    with pytest.raises(BaseException, match="call"):
        await party.commit()
    assert entries_at(table)


@PROFILES
@pytest.mark.parametrize("where", ["undecided", "decided"])
@pytest.mark.parametrize("how", ["recover", "rollback", "abort", "cleanup"])
async def test_entry_of_a_dead_job_is_deleted_by_ending_the_job(profile: str, where: str, how: str) -> None:
    table = Table(profile, OLD)
    await dead_replacer(table, where)
    other = await table.job("other", SECOND)
    await other.commit()
    assert other.busy
    assert other.error.owner == "dead"  # type: ignore[union-attr]
    assert table.files() == OLD
    options = table.options
    expected = OLD
    if how == "recover":
        await committer.recover(table.dest, "dead", storage_options=options)
        expected = FIRST
    elif how == "rollback":
        await committer.recover(table.dest, "dead", rollback=True, force=True, storage_options=options)
    elif how == "cleanup":
        if where == "decided":
            with pytest.raises(CommitterError):
                await committer.cleanup(table.dest, job_id="dead", storage_options=options)
        await committer.cleanup(table.dest, job_id="dead", force=True, storage_options=options)
    else:
        async with committer.attach_job(table.dest, job_id="dead", storage_options=options) as dead:
            if where == "decided":
                with pytest.raises(CommitterError) as caught:
                    await dead.abort()
                assert "recover" in caught.value.next_step
                assert entries_at(table)
                return
            await dead.abort()
    assert not entries_at(table)
    await other.commit()
    assert other.error is None, other.error
    assert table.files() == {**expected, **SECOND}
    assert table.temporary() == set()


@PROFILES
async def test_entry_is_not_deleted_by_another_job(profile: str) -> None:
    table = Table(profile, OLD)
    await dead_replacer(table, "undecided")
    options = table.options
    async with committer.open_job(table.dest, job_id="other", storage_options=options) as other:
        await other.abort()
    with pytest.raises(JobUndecidedError):
        async with committer.open_job(table.dest, job_id="third", storage_options=options) as third:
            try:
                await committer.recover(table.dest, "third", storage_options=options)
            finally:
                await third.abort()
    await committer.cleanup(table.dest, older_than=10_000, storage_options=options)
    assert entries_at(table)


@PROFILES
@pytest.mark.parametrize("how", ["cleanup", "older_than", "recover", "abort"])
async def test_entry_of_a_job_that_is_gone_blocks_no_job(profile: str, how: str) -> None:
    """An operator deleted the job's directories by hand."""
    table = Table(profile, OLD)
    await dead_replacer(table, "undecided")
    async with committer.attach_job(table.dest, job_id="dead", storage_options=table.options) as dead:
        table.remove(in_job(table, "dead"))
        if profile == "s3":
            table.remove(f"__magic_job-{unique_id(table, 'dead')}")
        other = await table.job("other", SECOND)
        await other.commit()
        assert other.error is None
        assert table.files() == {**OLD, **SECOND}
        assert entries_at(table)
        if how == "cleanup":
            with pytest.raises(CommitterError):
                await committer.cleanup(table.dest, job_id="dead", storage_options=table.options)
        elif how == "older_than":
            await committer.cleanup(table.dest, older_than=0, storage_options=table.options)
        elif how == "recover":
            with pytest.raises(CommitterError):
                await committer.recover(table.dest, "dead", storage_options=table.options)
        else:
            await dead.abort()
    assert not entries_at(table)
    assert table.temporary() == set()


@PROFILES
async def test_appender_that_died_undecided_blocks_replacers_until_it_is_ended(profile: str) -> None:
    table = Table(profile, OLD)
    dead = await table.job("dead", FIRST)
    dead.store.faults.append(Fault(kind="crash_before", operation="put", path="decision"))
    with pytest.raises(BaseException, match="call"):
        await dead.commit()
    replace = await table.job("replace", SECOND, REPLACE)
    await replace.commit()
    assert isinstance(replace.error, DestinationBusyError)
    assert replace.error.owner == "dead"
    append = await table.job("append", {"p=1/third": b"3"})
    await append.commit()
    assert append.error is None
    await committer.recover(table.dest, "dead", storage_options=table.options)
    await replace.commit()
    assert replace.error is None
    assert table.files() == SECOND
    assert table.temporary() == set()


@pytest.mark.parametrize("gone", [False, True])
async def test_entry_that_cannot_be_read_meets_every_job(gone: bool) -> None:
    table = Table("local", OLD)
    await dead_replacer(table, "undecided")
    [entry] = entries_at(table)
    table.write(entry, b"not json")
    if gone:
        table.remove(in_job(table, "dead"))
    party = await table.job("job", {"p=9/far": b"1"}, REPLACE)
    await party.commit()
    if gone:
        assert party.error is None
        return
    assert party.busy
    assert party.error.owner == "dead"  # type: ignore[union-attr]
    assert "may be committed there" in str(party.error)
    assert table.files() == OLD
