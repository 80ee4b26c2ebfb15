"""`durability="fsync"`: what was promised stands after a power loss at any moment (G7)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import committer
from committer import CommitterConfig, TaskCommit
from committer.errors import CommitterError, JobNotFoundError
from committer.flow.runtime import use_runtime
from committer.paths import StorePath
from committer.records.success import decode_success
from committer.spec import Delivery
from committer.stores.base import FileStatus
from committer.stores.memory import MemorySpace, MemoryStore
from committer.testing.faults import SimulatedCrash
from tests.guarantees.cluster import Impatient
from tests.guarantees.conftest import Tally
from tests.guarantees.power import PowerStore, new_space
from tests.guarantees.sweeps import EARLIER_SUCCESS
from tests.job_paths import has_in_job

JOB = "j1"
OUT = "data/new/out"
ELSEWHERE = "/data/also/new/elsewhere"
# The two tasks share a directory, and each has one of its own.
NEW = {
    0: {"day=0/part-0.csv": b"zero", "day=1/part-0.csv": b"one"},
    1: {"day=0/part-1.csv": b"two", "day=2/x=1/part-1.csv": b"three"},
}
OLD = {"day=0/old.csv": b"old 0", "day=9/old.csv": b"old 9", "top.csv": b"top", "_SUCCESS": EARLIER_SUCCESS}
SAME = {**OLD, "day=0/part-0.csv": b"old part", "day=2/x=1/part-1.csv": b"old part"}
# Some of it goes to absolute paths, where directories have to be made as well.
NEW_ELSEWHERE = {
    0: {"day=0/part-0.csv": b"zero", f"{ELSEWHERE}/day=1/part-0.csv": b"one"},
    1: {f"{ELSEWHERE}/part-1.csv": b"two", f"{ELSEWHERE}/day=2/x=1/part-1.csv": b"three"},
}
# Each task has a directory of its own with enough files to be renamed as a whole, one of them with another below it.
NEW_WHOLE = {
    0: {"day=0/part-0.csv": b"zero", **{f"day=1/part-0-{number}.csv": b"one" for number in range(3)}},
    1: {"day=2/part-1.csv": b"two", **{f"day=2/x=1/part-1-{number}.csv": b"three" for number in range(3)}},
}
OLD_ELSEWHERE = {f"{ELSEWHERE}/day=2/x=1/old.csv": b"old 2", f"{ELSEWHERE}/day=9/old.csv": b"old 9"}


@dataclass(frozen=True)
class Situation:
    """Files that exist before a job, the job's configuration, and the old files that stay."""

    before: dict[str, bytes] = field(default_factory=dict)
    config: dict[str, object] = field(default_factory=dict)
    stays: tuple[str, ...] = ()
    new: dict[int, dict[str, bytes]] = field(default_factory=lambda: NEW)

    @property
    def all_new(self) -> dict[str, bytes]:
        """What both tasks write."""
        return {**self.new[0], **self.new[1]}

    def complete(self) -> dict[str, bytes]:
        """Files at the destination after the commit, without markers."""
        return {**{name: self.before[name] for name in self.stays}, **self.all_new}


# A process that goes on with the job must say where else it may write.
VOUCHED = CommitterConfig(absolute_roots=(ELSEWHERE,))
KEPT = ("day=0/old.csv", "day=9/old.csv", "top.csv")
SITUATIONS = {
    "fresh": Situation(),
    "append": Situation(OLD, {}, KEPT),
    "same-names": Situation(SAME, {"existing_target": "replace"}, KEPT),
    "replace": Situation(OLD, {"conflict_mode": "replace"}, KEPT[1:]),
    "elsewhere": Situation(new=NEW_ELSEWHERE),
    "replace-elsewhere": Situation(
        {"day=9/old.csv": b"old 9", **OLD_ELSEWHERE, "_SUCCESS": EARLIER_SUCCESS},
        {"conflict_mode": "replace", "superseded_scope": "destination"},
        (f"{ELSEWHERE}/day=9/old.csv",),
        {0: {"day=0/part-0.csv": b"zero"}, 1: {f"{ELSEWHERE}/day=2/x=1/part-1.csv": b"three"}},
    ),
    "promoted": Situation(OLD, {"promote_directories": True}, KEPT, NEW_WHOLE),
    "replace-all": Situation(SAME, {"conflict_mode": "replace", "superseded_scope": "destination"}),
}
DELIVERIES: tuple[Delivery, ...] = ("listing", "message")


class _Dying(PowerStore):
    """Its process is killed where the outcome would be written."""

    alive = False

    async def put(self, path: StorePath, data: bytes, **rest: Any) -> FileStatus:
        if path.name == "outcome" and not self.alive:
            raise SimulatedCrash
        return await super().put(path, data, **rest)


def _store(situation: Situation, seeds: int, *, dying: bool = False) -> PowerStore:
    space = new_space()
    space.write("/data/beside", b"beside")
    for name, data in situation.before.items():
        space.write(name if name.startswith("/") else f"/{OUT}/{name}", data)
    return _Dying(space, seeds) if dying else PowerStore(space, seeds)


async def _run(
    store: PowerStore, situation: Situation, delivery: Delivery, durability: str, committer_name: str | None = None
) -> list[TaskCommit]:
    """Runs the job, noting what was promised."""
    roots = (ELSEWHERE,) if any(name.startswith("/") for name in situation.all_new) else ()
    config = CommitterConfig(durability=durability, absolute_roots=roots, **situation.config)  # type: ignore[arg-type]
    destination = store.space.path(OUT)
    messages: list[TaskCommit] = []
    job = await committer.open_job(
        destination,
        job_id=JOB,
        committer=committer_name,
        delivery=delivery,
        config=config,
        storage_options={"store": store},
    )
    _promise(store, "job")
    for number, files in situation.new.items():
        async with job.task_attempt(number) as task:
            for name, data in files.items():
                async with (task.open_absolute if name.startswith("/") else task.open)(name) as file:
                    await file.write(data)
        assert task.task_commit is not None
        messages.append(task.task_commit)
        _promise(store, f"task {number}")
    await job.commit(messages if delivery == "message" else None, tasks=len(situation.new))
    _promise(store, "done")
    return messages


def _promise(store: PowerStore, what: str) -> None:
    store.promised.add(what)
    store.picture(f"{what} is promised")


def _standing(files: dict[str, bytes], *, markers: bool = False) -> dict[str, bytes]:
    prefix = f"/{OUT}/"
    found = {
        path.removeprefix(prefix): data for path, data in files.items() if path.startswith((prefix, f"{ELSEWHERE}/"))
    }
    hidden = ("_temporary/",) if markers else ("_temporary/", "_SUCCESS")
    return {name: data for name, data in found.items() if not name.startswith(hidden)}


def _marked(files: dict[str, bytes]) -> bool:
    data = _standing(files, markers=True).get("_SUCCESS")
    return data is not None and decode_success(data, source="_SUCCESS").jobId == JOB


async def _check(
    space: MemorySpace, promised: frozenset[str], situation: Situation, delivery: Delivery, messages: list[TaskCommit]
) -> str:
    """What was promised stands, or comes back by what an operator would do."""
    destination, complete = space.path(OUT), situation.complete()
    store = PowerStore(space, watched=False)
    options = {"store": store}
    files = space.files()
    if _marked(files):
        assert _standing(files) == complete, "_SUCCESS without all files"
    assert "done" not in promised or _marked(files), "the commit returned, _SUCCESS is gone"
    if "outcome" in promised:
        assert _standing(files) == complete, "an outcome without all files"
        # It may be cleaned up as far as any record tells.
        with contextlib.suppress(CommitterError):
            await committer.recover(destination, JOB, config=VOUCHED, storage_options=options)
        assert _standing(space.files()) == complete, "recover changed a job that had ended"
        return "committed"
    if "decision" in promised:
        report = await committer.recover(destination, JOB, config=VOUCHED, storage_options=options)
        assert report.success
        for found in (space.files(), store.left()):
            assert _standing(found) == complete
            assert _marked(found)
        return "committed"
    untouched = {name: data for name, data in situation.before.items() if name != "_SUCCESS"}
    if not has_in_job(files, JOB, "decision", above=f"/{OUT}/"):
        assert _standing(files) == untouched, "something changed before the decision"
    if "job" not in promised:
        return "untouched"
    named = [message for message in messages if f"task {message.task}" in promised]
    job = await committer.attach_job(destination, job_id=JOB, config=VOUCHED, storage_options=options)
    await job.commit(named if delivery == "message" else None)
    expected = {name: data for message in named for name, data in situation.new[message.task].items()}
    standing = _standing(store.left())
    assert expected.items() <= standing.items(), "the files of a committed task are gone"
    assert all(data in (untouched.get(name), situation.all_new.get(name)) for name, data in standing.items())
    if len(named) == len(situation.new):
        assert standing == complete
    return "committed"


async def _check_all(
    store: PowerStore, check: Callable[[MemorySpace, frozenset[str]], Awaitable[str]], tally: Tally
) -> list[str]:
    wrong: list[str] = []
    pictures = tally.share(store.pictures)
    tally.calls += len(pictures)
    for picture in pictures:
        for number, tree in enumerate(picture.trees):
            space = picture.space(tree)
            try:
                tally.note(await check(space, picture.promised))
            except (AssertionError, CommitterError) as error:
                how = f"by chance {number}" if number else "all that may go goes"
                wrong.append(f"{picture.moment} ({how}, {sorted(picture.promised)}): {error!r}")
            finally:
                MemoryStore.forget(space.name)
    return wrong


async def _lose_power(
    name: str,
    delivery: Delivery,
    seeds: int,
    tally: Tally,
    durability: str = "fsync",
    committer_name: str | None = None,
) -> list[str]:
    situation = SITUATIONS[name]
    with use_runtime(Impatient(1)):
        store = _store(situation, seeds)
        messages = await _run(store, situation, delivery, durability, committer_name)
        assert _standing(store.space.files()) == situation.complete()
        return await _check_all(
            store, lambda space, promised: _check(space, promised, situation, delivery, messages), tally
        )


async def _lose_power_while_rolled_back(
    name: str, delivery: Delivery, seeds: int, tally: Tally, committer_name: str | None = None
) -> list[str]:
    situation = SITUATIONS[name]
    with use_runtime(Impatient(1)):
        store = _store(situation, seeds, dying=True)
        assert isinstance(store, _Dying)
        with pytest.raises(SimulatedCrash):
            await _run(store, situation, delivery, "fsync", committer_name)
        store.alive = True
        store.pictures.clear()
        _promise(store, "the start")
        destination = store.space.path(OUT)
        await committer.recover(destination, JOB, rollback=True, config=VOUCHED, storage_options={"store": store})
        assert _standing(store.space.files(), markers=True) == situation.before
        _promise(store, "done")

        async def check(space: MemorySpace, promised: frozenset[str]) -> str:
            again = PowerStore(space, watched=False)
            with contextlib.suppress(JobNotFoundError):
                await committer.recover(
                    space.path(OUT), JOB, rollback=True, config=VOUCHED, storage_options={"store": again}
                )
            for found in (space.files(), again.left()):
                assert _standing(found, markers=True) == situation.before
            return "untouched"

        return await _check_all(store, check, tally)


def _report(wrong: list[str]) -> str:
    return f"{len(wrong)} wrong, the first:\n" + "\n".join(wrong[:8])


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("name", SITUATIONS)
async def test_power_loss_at_every_moment(name: str, delivery: Delivery, tally: Tally) -> None:
    wrong = await _lose_power(name, delivery, 2, tally)
    assert not wrong, _report(wrong)


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("name", SITUATIONS)
async def test_power_loss_at_every_moment_of_a_rollback(name: str, delivery: Delivery, tally: Tally) -> None:
    wrong = await _lose_power_while_rolled_back(name, delivery, 1, tally)
    assert not wrong, _report(wrong)


@pytest.mark.parametrize("name", ["fresh", "append", "same-names", "replace"])
async def test_power_loss_at_every_moment_of_a_job_in_hadoops_layout(name: str, tally: Tally) -> None:
    """A directory that a driver takes leaves the place where tasks commit: no power loss may leave it in neither."""
    wrong = await _lose_power(name, "listing", 2, tally, committer_name="file-v1")
    wrong += await _lose_power_while_rolled_back(name, "listing", 1, tally, "file-v1")
    assert not wrong, _report(wrong)


async def test_whole_directories_are_renamed_where_power_is_lost() -> None:
    situation = SITUATIONS["promoted"]
    with use_runtime(Impatient(1)):
        store = _store(situation, 0)
        await _run(store, situation, "listing", "fsync")
    names = [path.name for path in store.renamed]
    assert names.count("tasks-sealed") == 1
    assert {"day=1", "day=2"} <= set(names)


async def test_without_durability_the_same_losses_show() -> None:
    """The model is no better than the disk it stands for: a job that forces nothing loses what it was told."""
    assert await _lose_power("fresh", "listing", 0, Tally(), durability="none")


@pytest.mark.slow
@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("name", SITUATIONS)
async def test_power_loss_by_many_chances(name: str, delivery: Delivery, tally: Tally) -> None:
    wrong = await _lose_power(name, delivery, 20, tally)
    wrong += await _lose_power_while_rolled_back(name, delivery, 20, tally)
    assert not wrong, _report(wrong)
