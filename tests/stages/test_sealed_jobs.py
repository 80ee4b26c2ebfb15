"""Whole directories published by one rename each, while something still writes into where they come from."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, JobDecidedError
from committer.paths import StorePath
from committer.stages.load import load_records, planned_files
from committer.testing.faults import Call, Fault, FaultKind
from tests.neighbours.meeting import Connection, Party, Table, interrupted
from tests.places import write_file
from tests.sweeps import Share

PROFILES = ("local", "hdfs", "adls")
DELIVERIES = ("listing", "message")
CASES = [
    pytest.param(
        profile,
        delivery,
        marks=[] if (profile, delivery) in {("local", "listing"), ("adls", "message")} else [pytest.mark.slow],
    )
    for profile in PROFILES
    for delivery in DELIVERIES
]
cases = pytest.mark.parametrize(("profile", "delivery"), CASES)

OLD = {"p=0/old": b"old"}
# To be renamed as a whole: p=1, p=2 and q=1. In p=0 a file stands, and p=3 is of two tasks.
WRITTEN = [
    {f"p={part}/part-0-{number}": b"new" for part in (0, 1, 3) for number in range(3)},
    {f"{part}/part-1-{number}": b"new" for part in ("p=2", "p=3", "q=1/r=1", "q=1/r=2") for number in range(3)},
]
COMPLETE = {**OLD, **WRITTEN[0], **WRITTEN[1]}
CONFIG = CommitterConfig(io_concurrency=1, promote_directories=True)
RECORDS = {"attempts", "manifests"}


@pytest.fixture(autouse=True, params=["kept in memory", "read again"])
def of_a_large_job(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether no file is kept in memory or on the disk, and records are read again one after the other, as those of large jobs are."""
    again = bool(request.param == "read again")
    if again:
        monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", 0)
        monkeypatch.setattr(load_records, "BYTES_ON_DISK", 0)
        monkeypatch.setattr(planned_files, "BYTES_IN_A_RUN", 1)
    return again


class Ordeal:
    """A job about to be committed, and what its tasks' directories are called."""

    def __init__(self, table: Table, party: Party, directories: list[StorePath], spec: committer.JobSpec) -> None:
        self.table = table
        self.party = party
        self.directories = directories
        self.spec = spec
        self.strays = 0

    async def stray(self) -> None:
        """A program of each attempt that committed goes on, and writes into every directory of it by path."""
        self.strays += 1
        store = self.table.space.store()
        for directory, files in zip(self.directories, WRITTEN, strict=True):
            for name in sorted({name.rpartition("/")[0] for name in files}):
                try:
                    await store.put(directory / name / f"stray-{self.strays}", b"stray")
                except CommitterError:
                    continue

    def check_committed(self, *, neat: bool = True) -> None:
        """All is there, and no stray."""
        assert self.table.files() == COMPLETE
        if neat:
            assert self.table.temporary() == set()

    def check_untouched(self) -> None:
        """As before the job."""
        assert self.table.files() == OLD
        assert self.table.temporary() == set()
        self.check_old_directories()

    def check_old_directories(self) -> None:
        directories = {name for name in self.table.space.directories() if "_temporary" not in name}
        assert directories == {"/table", "/table/p=0"}


async def ordeal(profile: str, delivery: str, config: CommitterConfig = CONFIG, job_id: str = "job") -> Ordeal:
    table = Table(profile, OLD)
    return await _prepared(table, delivery, config, job_id)


async def _prepared(table: Table, delivery: str, config: CommitterConfig, job_id: str) -> Ordeal:
    job = await committer.open_job(
        table.dest, job_id=job_id, config=config, delivery=delivery, storage_options=table.options
    )
    messages, directories = [], []
    for number, files in enumerate(WRITTEN):
        async with committer.open_task(job.spec, task=number, storage_options=table.options) as task:
            for name, data in files.items():
                await write_file(task, name, data)
        messages.append(task.task_commit)
        directories.append(task.directory)
    store = Connection(table.space)
    driver = await committer.attach_job(job.spec, storage_options={"store": store})
    store.calls.clear()
    party = Party(driver, store, messages if delivery == "message" else None, tasks=len(WRITTEN))
    return Ordeal(table, party, directories, job.spec)


async def recover(table: Table, **how: bool) -> None:
    await committer.recover(table.dest, "job", storage_options=table.options, **how)


def promotions(party: Party) -> set[str]:
    return {
        call.destination.name
        for call in party.store.calls
        if call.operation == "rename_directory"
        and call.destination is not None
        and "_temporary" not in str(call.destination)
    }


@cases
async def test_one_attempts_directories_are_sealed_first(profile: str, delivery: str, of_a_large_job: bool) -> None:
    run = await ordeal(profile, delivery)
    await run.party.commit()
    assert run.party.error is None
    run.check_committed()
    assert promotions(run.party) == {"p=1", "p=2", "q=1"}
    renames = [
        call for call in run.party.store.calls if call.operation == "rename_directory" and "tasks" in str(call.path)
    ]
    sealed = [call.path.name for call in renames if call.path.parent.name == "00" or call.path.parent.name == "tasks"]
    # One rename where a late write is refused, else one a winner: its name holds a nonce, that of `tasks` does not.
    assert len(sealed) == (2 if profile == "adls" else 1)
    published = [
        call for call in run.party.store.calls if call.operation == "rename_file" and "part-" in str(call.path)
    ]
    assert len(published) == 9
    # A large job's records, or their copies, are read once more: a promotion takes no pass of its own.
    reads = [call for call in run.party.store.calls if call.operation == "read" and call.path.parent.name in RECORDS]
    assert len(reads) == (2 if delivery == "listing" or of_a_large_job else 0)


@cases
async def test_no_stray_of_a_winner_is_ever_visible(profile: str, delivery: str, share: Share) -> None:
    """Whenever a program of the attempt that committed writes by path: before, between and after any two calls."""
    for number in share.counted():
        run = await ordeal(profile, delivery)
        await interrupted(run.party, number, run.stray)
        assert run.party.error is None, number
        run.check_committed(neat=profile != "adls")
        if number > run.party.calls:
            break


@cases
async def test_strays_all_the_time(profile: str, delivery: str) -> None:
    run = await ordeal(profile, delivery)

    async def before(_call: Call) -> None:
        await run.stray()

    run.party.store.before_call = before
    await run.party.commit()
    assert run.party.error is None
    run.check_committed(neat=False)


async def at_every_call(
    profile: str, delivery: str, trouble: FaultKind, share: Share, then: Callable[[Ordeal, int], Awaitable[None]]
) -> None:
    """Commits with one fault at each call of the share in turn, strays written before it; then what follows."""
    for number in share.counted():
        run = await ordeal(profile, delivery)
        fault = Fault(kind=trouble, call=number)
        run.party.store.faults.append(fault)

        async def before(call: Call, run: Ordeal = run, number: int = number) -> None:
            if call.number == number:
                await run.stray()

        run.party.store.before_call = before
        try:
            await run.party.commit()
        except BaseException as error:
            if type(error).__name__ != "SimulatedCrash":
                raise
        await run.stray()
        await then(run, number)
        if fault.times:
            break


@cases
@pytest.mark.parametrize("trouble", ["crash_before", "crash_after", "lost", "unanswered"])
async def test_recovered_with_strays(profile: str, delivery: str, trouble: FaultKind, share: Share) -> None:
    async def then(run: Ordeal, number: int) -> None:
        try:
            await recover(run.table, force=delivery == "listing")
        except CommitterError as error:
            # Nothing was begun, or all is over.
            assert not run.table.temporary() or not any("decision" in name for name in run.table.temporary()), error
        if run.table.files() != COMPLETE:
            # A job by message that no driver began to commit.
            assert run.table.files() == OLD, number
        assert not any("stray" in name for name in run.table.files())

    await at_every_call(profile, delivery, trouble, share, then)


@cases
@pytest.mark.parametrize("trouble", ["crash_before", "crash_after", "unanswered"])
async def test_rolled_back_with_strays(profile: str, delivery: str, trouble: FaultKind, share: Share) -> None:
    async def then(run: Ordeal, number: int) -> None:
        with contextlib.suppress(CommitterError):
            await recover(run.table, rollback=True)
        assert run.table.files() in (OLD, COMPLETE), number
        await run.stray()
        assert not any("stray" in name for name in run.table.files())

    await at_every_call(profile, delivery, trouble, share, then)


@cases
async def test_recovered_while_the_driver_stands_still(profile: str, delivery: str, share: Share) -> None:
    for number in share.counted():
        run = await ordeal(profile, delivery)
        came: list[CommitterError] = []

        async def other(run: Ordeal = run, came: list[CommitterError] = came) -> None:
            await run.stray()
            try:
                await recover(run.table)
            except CommitterError as error:
                came.append(error)
            await run.stray()

        await interrupted(run.party, number, other)
        assert run.table.files() == COMPLETE, (number, came, run.party.error)
        if number > run.party.calls:
            break


@cases
async def test_rolled_back_while_the_driver_stands_still(profile: str, delivery: str, share: Share) -> None:
    ends = set()
    for number in share.counted():
        run = await ordeal(profile, delivery)

        async def other(run: Ordeal = run) -> None:
            await run.stray()
            with contextlib.suppress(CommitterError):
                await recover(run.table, rollback=True)
            await run.stray()

        await interrupted(run.party, number, other)
        files = run.table.files()
        assert files in (OLD, COMPLETE), (number, run.party.error, files)
        assert (files == COMPLETE) == (run.party.report is not None and run.party.report.success), number
        if files == OLD:
            run.check_old_directories()
        ends.add(len(files))
        if number > run.party.calls:
            break
    assert len(ends) == 2 or not share.is_whole


@cases
@pytest.mark.parametrize("trouble", ["late", "again"])
@pytest.mark.parametrize("end", ["recover", "roll back", "clean up"])
async def test_a_late_rename_spares_another_setup(profile: str, delivery: str, trouble: FaultKind, end: str) -> None:
    """Each rename of a directory arrives once more, or only then, when the id was set up anew and tasks committed."""
    for nth in count(0):
        run = await ordeal(profile, delivery)
        store = run.party.store
        renames = 0
        held: list[Fault] = []

        async def before(call: Call, store: Connection = store, nth: int = nth, held: list[Fault] = held) -> None:
            nonlocal renames
            if call.operation == "rename_directory":
                if renames == nth:
                    # So late that nothing but the end of the test lets it arrive.
                    held.append(Fault(kind=trouble, call=call.number, delay_s=0.2))
                    store.faults.append(held[0])
                renames += 1

        store.before_call = before
        await run.party.commit()
        if not held:
            break
        try:
            if end == "recover":
                await recover(run.table)
            elif end == "roll back":
                await recover(run.table, rollback=True)
            else:
                await committer.cleanup(run.table.dest, job_id="job", force=True, storage_options=run.table.options)
        except CommitterError:
            pass
        before_anew = run.table.files()
        # A commit that a late freeze kept from going on left an open job.
        try:
            again = await _prepared(run.table, delivery, CONFIG, "job")
        except CommitterError:
            again = None
        for task in list(store.under_way):
            await task
        if again is None:
            assert run.table.files() == before_anew, nth
            continue
        if before_anew == COMPLETE:
            # What the first job published is in the way: nothing of it changes.
            await again.party.commit()
            assert again.party.error is not None
            assert run.table.files() == COMPLETE
            continue
        await again.party.commit()
        assert again.party.error is None, (nth, store.log())
        assert run.table.files() == COMPLETE, nth


@cases
async def test_an_attempt_that_lost_is_told_that_its_job_is_decided(profile: str, delivery: str) -> None:
    """Where late writes are refused its directory is gone once the job is sealed; elsewhere it finds out at its end."""
    run = await ordeal(profile, delivery)
    told: list[CommitterError] = []
    options = run.table.options
    loser = await committer.open_task(run.spec, task=0, attempt=1, storage_options=options)
    await write_file(loser, "p=1/part-lost", b"lost")

    async def goes_on(call: Call) -> None:
        if call.operation == "rename_file" and not told:
            for name in ("p=1/part-more", "p=9/part-more"):
                with pytest.raises(CommitterError) as caught:
                    await write_file(loser, name, b"lost")
                    await loser.commit()
                told.append(caught.value)
            with pytest.raises(CommitterError) as caught:
                await committer.open_task(run.spec, task=1, attempt=1, storage_options=options)
            told.append(caught.value)

    run.party.store.before_call = goes_on
    await run.party.commit()
    assert run.party.error is None
    run.check_committed(neat=False)
    assert [type(error) for error in told] == [JobDecidedError] * 3, told
    await loser.abort()
