"""How often a call of the public API opens its store: once, however many jobs it is about; and it closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import count
from typing import Any

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.api.cleanup import clean_and_report
from committer.api.recover import check_recovery
from committer.errors import CommitterError, ConfigurationError
from committer.events.display import Display
from committer.flow.pacing import Claim, Pacer
from committer.paths import StorePath
from committer.stores.memory import MemoryStore
from committer.stores.registry import register_store, unregister_store

_numbers = count()


class Opened(MemoryStore):
    """A store that counts how many of it are made, and are not closed yet."""

    made: int = 0
    left: int = 0

    def __init__(self, name: str) -> None:
        super().__init__(name)
        type(self).made += 1
        type(self).left += 1

    async def close(self) -> None:
        type(self).left -= 1


@pytest.fixture
def opened() -> Iterator[type[Opened]]:
    class Counted(Opened):
        pass

    def make(path: StorePath, options: Mapping[str, object]) -> Counted:
        return Counted(path.authority)

    register_store("memory", make)
    yield Counted
    unregister_store("memory")


async def test_a_display_is_closed_where_no_store_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Display] = []

    async def close(display: Display) -> None:
        closed.append(display)

    monkeypatch.setattr(Display, "close", close)
    with pytest.raises(ConfigurationError):
        await committer.open_job("memory://space/table", progress=True, storage_options={"nonsense": "1"})
    assert len(closed) == 1


async def test_a_cleanup_releases_its_limits(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Claim] = []
    claim, release = Pacer.claim, Claim.release

    def claims(pacer: Pacer, *arguments: Any, **named: Any) -> Claim:
        left.append(claim(pacer, *arguments, **named))
        return left[-1]

    def releases(one: Claim) -> None:
        left[:] = [other for other in left if other is not one]
        release(one)

    monkeypatch.setattr(Pacer, "claim", claims)
    monkeypatch.setattr(Claim, "release", releases)
    await committer.cleanup(table, older_than=0)
    assert left == []


@pytest.fixture
async def table(opened: type[Opened]) -> str:
    """A destination with a finished job, and three open ones."""
    space = MemoryStore.space(f"opened-{next(_numbers)}", "local")
    dest = f"memory://{space.name}/table"
    async with committer.open_job(dest, job_id="finished") as job, job.task_attempt(0) as task:
        async with task.open("part-0") as file:
            await file.write(b"1")
    for name in ("open-0", "open-1", "open-2"):
        job = await committer.open_job(dest, job_id=name)
        await job.close()
    opened.made = opened.left = 0
    return dest


async def _open_and_close(opening: Any) -> None:
    job = await opening
    await job.close()


CALLS: dict[str, Callable[[str], Awaitable[object]]] = {
    "open_job": lambda dest: _open_and_close(committer.open_job(dest, job_id="another")),
    "attach_job": lambda dest: _open_and_close(committer.attach_job(dest, job_id="open-0")),
    "list_jobs": committer.list_jobs,
    "cleanup by age": lambda dest: committer.cleanup(dest, older_than=0),
    "cleanup of one": lambda dest: committer.cleanup(dest, job_id="open-1"),
    "planned cleanup": lambda dest: clean_and_report(dest, dry=True, older_than=0),
    "cleanup of an outcome": lambda dest: clean_and_report(dest, job_id="open-2", forgets=True),
    "recover": lambda dest: committer.recover(dest, "open-0", rollback=True),
    "recover what is over": lambda dest: committer.recover(dest, "finished"),
    "check_recovery": lambda dest: check_recovery(dest, "open-0", rollback=True),
    "validate": committer.validate,
}


@pytest.mark.parametrize("call", CALLS)
async def test_one_store_is_opened_and_closed(call: str, table: str, opened: type[Opened]) -> None:
    await CALLS[call](table)
    assert (opened.made, opened.left) == (1, 0)


async def test_a_task_attempt_opens_one_of_its_own(table: str, opened: type[Opened]) -> None:
    job = await committer.open_job(table, job_id="with-task")
    opened.made = opened.left = 0
    async with committer.open_task(job.spec, task=0):
        assert (opened.made, opened.left) == (1, 1)
    assert (opened.made, opened.left) == (1, 0)
    await job.close()


@pytest.mark.parametrize("call", ["attach", "recover", "cleanup", "check_recovery"])
async def test_it_is_closed_when_there_is_no_such_job(call: str, table: str, opened: type[Opened]) -> None:
    refused: Awaitable[object] = {
        "attach": lambda: committer.attach_job(table, job_id="none"),
        "recover": lambda: committer.recover(table, "none"),
        "cleanup": lambda: committer.cleanup(table, job_id="none"),
        "check_recovery": lambda: check_recovery(table, "none"),
    }[call]()
    with pytest.raises(committer.errors.JobNotFoundError):
        await refused
    assert (opened.made, opened.left) == (1, 0)


async def test_it_is_closed_when_the_call_is_cancelled(table: str, opened: type[Opened]) -> None:
    for turns in range(40):
        opened.made = opened.left = 0
        cleaning = asyncio.create_task(clean_and_report(table, dry=True, older_than=0))
        for _ in range(turns):
            await asyncio.sleep(0)
        cleaning.cancel()
        await asyncio.wait([cleaning])
        assert opened.left == 0


async def test_a_store_of_the_callers_is_left_open(table: str, opened: type[Opened]) -> None:
    store = opened(table.split("/")[2])
    opened.made = opened.left = 0
    options = {"store": store}
    await committer.cleanup(table, older_than=0, storage_options=options)
    await committer.list_jobs(table, storage_options=options)
    await committer.recover(table, "finished", storage_options=options)
    assert (opened.made, opened.left) == (0, 0)


@pytest.mark.parametrize("wrong", ["job id", "place of reports", "place of a task's reports"])
async def test_store_of_what_cannot_be_opened_is_closed(opened: type[Opened], wrong: str) -> None:
    dest = f"memory://{MemoryStore.space(f'opened-{next(_numbers)}', 'local').name}/table"
    inside = CommitterConfig(summary_report_directory=f"{dest}/reports")
    with pytest.raises(CommitterError):
        if wrong == "job id":
            await committer.open_job(dest, job_id="../x")
        elif wrong == "place of reports":
            await committer.open_job(dest, config=inside)
        else:
            await committer.open_task(JobSpec.for_hadoop(dest, "job_1_0001", config=inside), task=0)
    assert opened.left == 0
