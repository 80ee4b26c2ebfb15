"""An appending job beside a replacing one, in every interleaving of store calls: as if one came after the other."""

from __future__ import annotations

from itertools import product

import pytest

from committer import CommitterConfig
from committer.records.success import SuccessData, decode_success, encode_success
from tests.neighbours.meeting import Party, Table, crossed, interrupted
from tests.sweeps import Share

OLD = {"p=1/old": b"old", "p=2/old": b"old"}
APPENDED = {"p=1/appended": b"a", "p=3/appended": b"a"}
REPLACING = {"p=1/replacing": b"r", "p=3/replacing": b"r"}

ONE_BY_ONE = CommitterConfig(io_concurrency=1)
REPLACE = CommitterConfig(io_concurrency=1, conflict_mode="replace")

AFTER_BOTH_APPEND_FIRST = {"p=2/old": b"old", **REPLACING}
AFTER_BOTH_REPLACE_FIRST = {"p=2/old": b"old", **REPLACING, **APPENDED}
AFTER_APPEND = {**OLD, **APPENDED}
AFTER_REPLACE = {"p=2/old": b"old", **REPLACING}

PROFILES = pytest.mark.parametrize("profile", ["local", "adls", "gcs", "s3"])
DELIVERIES = pytest.mark.parametrize("delivery", ["listing", "message"])


async def parties(profile: str, delivery: str = "listing") -> tuple[Table, Party, Party]:
    table = Table(profile, OLD)
    table.write("_SUCCESS", encode_success(SuccessData(jobId="before", success=True)))
    append = await table.job("append", APPENDED, ONE_BY_ONE, delivery)
    replace = await table.job("replace", REPLACING, REPLACE, delivery)
    return table, append, replace


async def check(table: Table, append: Party, replace: Party) -> str:
    """The destination must be as after some serial order of the jobs that committed; then the job that withdrew goes on."""
    for party, other in ((append, replace), (replace, append)):
        if party.error is not None:
            assert party.busy, party.error
            assert party.error.owner == other.driver.job_id  # type: ignore[attr-defined]
            assert party.error.outcome == "unchanged"
            assert other.driver.job_id in party.error.next_step
    found = table.files()
    check_marker(table, {party.driver.job_id for party in (append, replace) if party.error is None})
    if append.error is None and replace.error is None:
        assert found in (AFTER_BOTH_APPEND_FIRST, AFTER_BOTH_REPLACE_FIRST), found
        word = "append, replace" if found == AFTER_BOTH_APPEND_FIRST else "replace, append"
    elif append.error is None:
        assert found == AFTER_APPEND
        word = "replace withdrew"
        await replace.commit()
        assert replace.error is None, replace.error
        assert table.files() == AFTER_BOTH_APPEND_FIRST
    elif replace.error is None:
        assert found == AFTER_REPLACE
        word = "append withdrew"
        await append.commit()
        assert append.error is None, append.error
        assert table.files() == AFTER_BOTH_REPLACE_FIRST
    else:
        assert found == OLD
        word = "both withdrew"
        await append.commit()
        await replace.commit()
        assert append.error is None
        assert replace.error is None
        assert table.files() == AFTER_BOTH_APPEND_FIRST
    assert table.temporary() == set()
    # Each job that committed was in place before the last one wrote its marker.
    check_marker(table, {"append", "replace"} if word in ("append, replace", "replace, append") else {last(word)})
    return word


def check_marker(table: Table, committed: set[str]) -> None:
    """`_SUCCESS` names a job that committed; the one of before stands while none did."""
    marker = decode_success(table.all_files()["_SUCCESS"], source="_SUCCESS")
    assert marker.success
    assert marker.jobId in (committed or {"before"})


def last(word: str) -> str:
    """The job that committed last, where that is known."""
    return {"append withdrew": "append", "replace withdrew": "replace", "both withdrew": "replace"}[word]


ALL_WORDS = {"append, replace", "replace, append", "append withdrew", "replace withdrew", "both withdrew"}


@PROFILES
@DELIVERIES
@pytest.mark.parametrize("met", ["append", "replace"])
async def test_one_meets_the_other_whole(profile: str, delivery: str, met: str, share: Share) -> None:
    words: set[str] = set()
    for number in share.counted():
        table, append, replace = await parties(profile, delivery)
        one, other = (append, replace) if met == "append" else (replace, append)
        await interrupted(one, number, other.commit)
        words.add(await check(table, append, replace))
        if number > one.calls:
            break
    withdrew = "replace withdrew" if met == "append" else "append withdrew"
    share.check_seen(words, {"append, replace", "replace, append", withdrew})


@pytest.mark.slow
@PROFILES
async def test_append_and_replace_crossed_twice(profile: str) -> None:
    words: set[str] = set()
    at, first_calls, second_calls = 0, 1, 1
    while at < first_calls:
        at, back_at = at + 1, 0
        while back_at < second_calls:
            back_at += 1
            for swap in (False, True):
                table, append, replace = await parties(profile)
                one, two = (replace, append) if swap else (append, replace)
                await crossed(one, at, two, back_at)
                words.add(await check(table, append, replace))
                first_calls, second_calls = max(first_calls, one.calls), max(second_calls, two.calls)
    assert {"append, replace", "replace, append", "replace withdrew", "append withdrew"} <= words


@PROFILES
async def test_append_and_replace_crossed_twice_where_it_matters(profile: str, share: Share) -> None:
    """The calls up to the decision, where either finds the other."""
    words: set[str] = set()
    for at, back_at, swap in share.of([*product(range(2, 9), range(2, 10), (False, True))]):
        table, append, replace = await parties(profile)
        one, two = (replace, append) if swap else (append, replace)
        await crossed(one, at, two, back_at)
        words.add(await check(table, append, replace))
    share.check_seen(words, {"replace withdrew", "append withdrew"}, ALL_WORDS)
