"""Two drivers of one job, stopped and continued at every store call: the deterministic counterpart of real signals.

A driver that is stopped before one of its calls, while another process ends the job, and then goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.errors import (
    CommitterError,
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    JobUndecidedError,
)
from committer.records.success import decode_success
from committer.testing.faults import Fault, SimulatedCrash
from tests.neighbours.meeting import Connection, Party, Table, crossed, interrupted

OLD = {"p=1/old": b"old", "p=1/same": b"old", "other/old": b"old"}
# Where directories are not renamed in one step no driver can be fenced off: there a rollback wants the user's word that no
# other driver is alive.
FENCING = ("local", "hdfs", "adls")
PROFILES = (*FENCING, "gcs")
MODES = ("append", "overwrite", "replace", "promote")
QUICK = {("local", mode, "listing") for mode in MODES} | {("adls", "replace", "message"), ("gcs", "append", "message")}


def cases(profiles: tuple[str, ...]) -> pytest.MarkDecorator:
    """Every combination; those that teach little more than others take their time behind `slow`."""
    return pytest.mark.parametrize(
        ("profile", "mode", "delivery"),
        [
            pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow])
            for case in product(profiles, MODES, ("listing", "message"))
        ],
    )


def pairs(profiles: tuple[str, ...]) -> pytest.MarkDecorator:
    """Combinations for two recoverers."""
    quick = {("local", "append"), ("local", "replace"), ("gcs", "append")}
    return pytest.mark.parametrize(
        ("profile", "mode"),
        [
            pytest.param(*case, marks=[] if case in quick else [pytest.mark.slow])
            for case in product(profiles, ("append", "replace"))
        ],
    )


NEW = {**{f"p={number % 3}/new-{number}": b"new" for number in range(4)}, "q=1/r=1/new": b"new"}
CONFIGS = {
    "append": CommitterConfig(io_concurrency=1),
    "overwrite": CommitterConfig(io_concurrency=1, existing_target="replace"),
    "replace": CommitterConfig(io_concurrency=1, conflict_mode="replace"),
    "promote": CommitterConfig(io_concurrency=1, promote_directories=True),
}


def written(mode: str) -> dict[str, bytes]:
    """What the job's task writes."""
    if mode == "overwrite":
        return {**NEW, "p=1/same": b"new"}
    if mode == "promote":
        return {**NEW, **{f"q=1/r=1/more-{number}": b"new" for number in range(4)}}
    return NEW


def complete(mode: str) -> dict[str, bytes]:
    """The destination once the job committed."""
    old = dict(OLD)
    if mode == "replace":
        del old["p=1/old"], old["p=1/same"]
    return {**old, **written(mode)}


async def table_and_driver(profile: str, mode: str, delivery: str = "listing") -> tuple[Table, Party]:
    table = Table(profile, OLD)
    async with committer.open_job(table.dest, job_id="earlier", storage_options=table.options):
        pass
    return table, await table.job("job", written(mode), CONFIGS[mode], delivery)


def is_complete(table: Table, mode: str) -> bool:
    if table.files() != complete(mode):
        return False
    assert decode_success(table.all_files()["_SUCCESS"], source="").jobId == "job"
    assert table.temporary() == set()
    return True


def is_untouched(table: Table) -> bool:
    if table.files() != OLD:
        return False
    assert decode_success(table.all_files()["_SUCCESS"], source="").jobId == "earlier"
    assert table.temporary() == set()
    check_directories(table)
    return True


def check_directories(table: Table) -> None:
    """No directory exists at the destination that no file needs."""
    needed = {"/table"}
    for name in table.files():
        parts = f"/table/{name}".split("/")
        needed.update("/".join(parts[:depth]) for depth in range(2, len(parts)))
    assert table.space.directories() - needed == set()


async def every_call(
    profile: str, mode: str, delivery: str, what: Callable[[Table], Awaitable[object]]
) -> list[tuple[Table, Party, Any, int]]:
    """Runs the driver once for each of its calls, stopped before that call while `what` happens; with what came of that."""
    runs = []
    number = 0
    while True:
        number += 1
        table, party = await table_and_driver(profile, mode, delivery)
        came: list[object] = []

        async def happen(table: Table = table, came: list[object] = came) -> None:
            try:
                came.append(await what(table))
            except CommitterError as error:
                came.append(error)

        await interrupted(party, number, happen)
        runs.append((table, party, came[0], number))
        if number > party.calls:
            return runs


@cases(PROFILES)
async def test_recovered_while_the_driver_is_stopped(profile: str, mode: str, delivery: str) -> None:
    async def recover(table: Table) -> object:
        return await committer.recover(table.dest, "job", storage_options=table.options)

    words = set()
    for table, party, came, number in await every_call(profile, mode, delivery, recover):
        assert is_complete(table, mode), (number, came, party.error)
        if isinstance(came, CommitterError):
            # No driver had begun to commit it: the driver goes on undisturbed.
            assert isinstance(came, JobUndecidedError), (number, came)
            assert party.error is None, (number, party.error)
            words.add("undecided")
            continue
        assert came.success
        assert came.files_committed == len(written(mode))
        assert party.error is None, (number, party.error)
        assert party.report is not None
        assert party.report.success
        assert party.report.files_committed == len(written(mode)), number
        words.add("recovered")
    assert words == {"undecided", "recovered"}


@cases(FENCING)
async def test_rolled_back_while_the_driver_is_stopped(profile: str, mode: str, delivery: str) -> None:
    async def roll_back(table: Table) -> object:
        return await committer.recover(table.dest, "job", rollback=True, force=True, storage_options=table.options)

    words = set()
    for table, party, came, number in await every_call(profile, mode, delivery, roll_back):
        if isinstance(came, CommitterError):
            # It was committed already, it ended and is gone, or it can only go forward.
            assert isinstance(came, JobStateError | JobNotFoundError), (number, came)
            assert party.error is None, (number, party.error)
            assert is_complete(table, mode), number
            words.add("too late")
            continue
        if came.success:
            # It had ended and was gone but for its report.
            assert is_complete(table, mode), number
            words.add("too late")
            continue
        assert isinstance(party.error, JobRolledBackError | JobNotFoundError | JobDecidedError), (number, party.error)
        assert party.error.next_step
        assert is_untouched(table), (number, table.files(), table.temporary())
        words.add("rolled back")
    assert words == {"rolled back", "too late"}


@pytest.mark.parametrize(("profile", "delivery"), [("local", "listing"), ("gcs", "message"), ("adls", "message")])
async def test_aborted_while_the_driver_is_stopped(profile: str, delivery: str) -> None:
    async def abort(table: Table) -> None:
        async with committer.attach_job(table.dest, job_id="job", storage_options=table.options) as other:
            await other.abort()

    words = set()
    for table, party, came, number in await every_call(profile, "append", delivery, abort):
        if party.error is None:
            assert is_complete(table, "append"), number
            words.add("too late" if came is None else type(came).__name__)
        else:
            assert came is None, (number, came)
            assert isinstance(party.error, JobDecidedError | JobNotFoundError), (number, party.error)
            assert party.error.outcome == "unchanged", (number, party.error)
            assert is_untouched(table), (number, table.files(), table.temporary())
            words.add("aborted")
    assert {"aborted", "JobDecidedError"} <= words
    assert words <= {"aborted", "JobDecidedError", "JobNotFoundError", "too late"}


@pytest.mark.parametrize("profile", ["local", "gcs"])
async def test_cleaned_up_while_the_driver_is_stopped(profile: str) -> None:
    async def clean(table: Table) -> object:
        return await committer.cleanup(table.dest, job_id="job", storage_options=table.options)

    for table, party, came, number in await every_call(profile, "append", "listing", clean):
        if party.error is None:
            assert is_complete(table, "append"), (number, came)
        else:
            assert isinstance(party.error, JobDecidedError | JobNotFoundError), (number, party.error)
            assert party.error.outcome == "unchanged", (number, party.error)
            assert is_untouched(table), (number, table.files(), table.temporary())


class Recoverer(Party):
    """`recover` in the place of a driver."""

    def __init__(self, table: Table, *, rollback: bool) -> None:
        super().__init__(None, Connection(table.space), None)
        self._dest, self._rollback = table.dest, rollback

    async def commit(self) -> None:
        self.error = None
        try:
            self.report = await committer.recover(
                self._dest, "job", rollback=self._rollback, force=True, storage_options={"store": self.store}
            )
        except CommitterError as error:
            self.error = error
        self.calls = self.store.count()


async def half_done(profile: str, mode: str, published: int) -> Table:
    """A job whose driver died with some files published."""
    table, party = await table_and_driver(profile, mode)
    name = sorted(written(mode))[published]
    party.store.faults.append(Fault(kind="crash_before", operation="rename_file", path=f"/table/{name}"))
    with pytest.raises(SimulatedCrash):
        await party.commit()
    return table


@pairs(PROFILES)
@pytest.mark.parametrize("rollback", [False, True])
async def test_two_recoverers_of_one_mind(profile: str, mode: str, rollback: bool) -> None:
    number = 0
    while True:
        number += 1
        table = await half_done(profile, mode, 3)
        one, two = Recoverer(table, rollback=rollback), Recoverer(table, rollback=rollback)
        await interrupted(one, number, two.commit)
        for recoverer in (one, two):
            if rollback:
                assert recoverer.error is None or isinstance(recoverer.error, JobNotFoundError), recoverer.error
            else:
                assert recoverer.error is None, (number, recoverer.error)
                assert recoverer.report is not None
                assert recoverer.report.files_committed == len(written(mode))
        if rollback:
            assert is_untouched(table), (number, table.files(), table.temporary())
        else:
            assert is_complete(table, mode), (number, table.temporary())
        if number > one.calls:
            break


@pairs(FENCING)
@pytest.mark.parametrize("first", ["forward", "rollback"])
async def test_two_recoverers_that_disagree(profile: str, mode: str, first: str) -> None:
    """The driver that ends the job first is obeyed by the other."""
    number = 0
    words = set()
    while True:
        number += 1
        table = await half_done(profile, mode, 3)
        one = Recoverer(table, rollback=first == "rollback")
        two = Recoverer(table, rollback=first != "rollback")
        await interrupted(one, number, two.commit)
        words.add(check_disagreement(table, mode, one, two, number))
        if number > one.calls:
            break
    assert words == {"committed", "rolled back"}


def check_disagreement(table: Table, mode: str, one: Recoverer, two: Recoverer, number: object) -> str:
    for recoverer in (one, two):
        if recoverer.error is not None:
            assert isinstance(recoverer.error, JobStateError | JobNotFoundError), (number, recoverer.error)
    if is_complete(table, mode):
        return "committed"
    assert is_untouched(table), (number, table.files(), table.temporary(), one.error, two.error)
    return "rolled back"


@pytest.mark.slow
@pytest.mark.parametrize("profile", FENCING)
@pytest.mark.parametrize("mode", ["append", "replace"])
@pytest.mark.parametrize("first_back", [False, True])
@pytest.mark.parametrize("second_back", [False, True])
async def test_two_recoverers_crossed_twice(profile: str, mode: str, first_back: bool, second_back: bool) -> None:
    at = most = 1
    while at <= most:
        back_at = back_most = 1
        while back_at <= back_most:
            table = await half_done(profile, mode, 3)
            one, two = Recoverer(table, rollback=first_back), Recoverer(table, rollback=second_back)
            await crossed(one, at, two, back_at)
            most, back_most = max(most, one.calls), max(back_most, two.calls)
            if not (first_back or second_back):
                assert one.error is None, (at, back_at, one.error)
                assert two.error is None, (at, back_at, two.error)
                assert is_complete(table, mode), (at, back_at)
            else:
                word = check_disagreement(table, mode, one, two, (at, back_at))
                assert word == "rolled back" or not (first_back and second_back), (at, back_at)
            back_at += 1
        at += 1
