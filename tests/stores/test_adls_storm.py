"""An account that serves so many requests a second and refuses the rest, and a job that begins too fast.

Real requests to a server in a process of its own. tests/flow/test_throttling_server.py has more such servers, in virtual
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import committer
from committer import CommitterConfig
from tests.stores.adls_process import Account, account_process

FILES = 10_000
FILES_A_TASK = 500
RATE = 800
TOO_FAST = 1.43
SETTLED_S = 5

pytestmark = [
    # Other timed tests beside it would take its processor time.
    pytest.mark.xdist_group("processes"),
    pytest.mark.asyncio(loop_factories=["asyncio"]),
]


@pytest.fixture
def account() -> Iterator[Account]:
    with account_process() as account:
        yield account


def name(number: int) -> str:
    return f"p={number % 10}/part-{number:05}"


async def write_all(uri: str, job_id: str, options: dict[str, object]) -> None:
    """The tasks of a job; of empty files, which take one request each."""
    job = await committer.open_job(uri, job_id=job_id, config=CommitterConfig(azure_io_rate=0), storage_options=options)

    async def write(task: int) -> None:
        async with job.task_attempt(task) as attempt:
            for number in range(task * FILES_A_TASK, (task + 1) * FILES_A_TASK):
                async with attempt.open(name(number)):
                    pass

    await asyncio.gather(*(write(task) for task in range(FILES // FILES_A_TASK)))
    await job.close()


async def test_ten_thousand_files_committed_too_fast(account: Account) -> None:
    uri = account.uri("table")
    options: dict[str, object] = {"endpoint": account.endpoint, "account_key": account.key}
    await write_all(uri, "J", options)
    await asyncio.to_thread(account.control, "POST", "rate", {"rate": RATE})
    await asyncio.to_thread(account.control, "DELETE", "counters")

    config = CommitterConfig(azure_io_rate=TOO_FAST * RATE)
    async with committer.attach_job(uri, job_id="J", config=config, storage_options=options) as job:
        report = await job.commit(tasks=FILES // FILES_A_TASK)

    counted = await asyncio.to_thread(account.control, "GET", "counters")
    await asyncio.to_thread(account.control, "POST", "rate", {"rate": 0})
    assert (report.success, report.files_committed, report.renames_recovered) == (True, FILES, 0)
    found = await asyncio.to_thread(account.sizes, "table")
    assert found.keys() == {"_SUCCESS", *(name(number) for number in range(FILES))}
    served = {second["second"]: second["served"] for second in counted["seconds"]}
    settled = [served.get(second, 0) for second in range(SETTLED_S, max(served))]
    # Some 0.9 where nothing else runs; other tests beside it take their share of the machine.
    assert sum(settled) >= 0.5 * RATE * len(settled)
    assert len(settled) >= SETTLED_S
    # It did begin too fast, and what was refused is what the job counted.
    assert counted["throttled"] == report.statistics.counters["store_io_throttled"] > 0
    renamed = await asyncio.to_thread(account.control, "GET", "requests?operation=rename&status=201")
    files = [one["source"] for one in renamed if "/tasks/" in one["source"]]
    assert len(files) == len(set(files)) == FILES
