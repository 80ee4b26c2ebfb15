"""A service that serves so many requests a second and refuses the rest, and a job that begins too fast.

Real requests to a server in a process of its own. tests/flow/test_throttling_server.py has more such servers, in virtual
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

import committer
from committer import CommitterConfig
from tests.stores.adls_process import Account, account_process
from tests.stores.gcs_process import RemoteBucket, bucket_process

FILES_A_TASK = 500
TOO_FAST = 1.43
SETTLED_S = 5

pytestmark = [
    # Other timed tests beside it would take its processor time.
    pytest.mark.xdist_group("processes"),
    pytest.mark.asyncio(loop_factories=["asyncio"]),
]


@dataclass(frozen=True)
class Service:
    """One of them.

    Attributes:
        remote: The server.
        options: How to reach it.
        rename: Operation and status of a file that was published.
        rate: How many requests it serves in a second.
        files: How many files keep it busy for some fifteen seconds.
    """

    remote: Account | RemoteBucket
    options: dict[str, object]
    rename: tuple[str, int]
    rate: int
    files: int

    @property
    def tasks(self) -> int:
        return self.files // FILES_A_TASK


@pytest.fixture(params=["adls", "gcs"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with ExitStack() as stack:
        if request.param == "adls":
            account = stack.enter_context(account_process())
            options: dict[str, object] = {"endpoint": account.endpoint, "account_key": account.key}
            yield Service(account, options, ("rename", 201), rate=400, files=5_000)
        else:
            bucket = stack.enter_context(bucket_process())
            yield Service(bucket, {"endpoint": bucket.url}, ("move", 200), rate=200, files=2_500)


def name(number: int) -> str:
    return f"p={number % 10}/part-{number:05}"


def rate(calls: float) -> CommitterConfig:
    return CommitterConfig(io_rate=calls, azure_io_rate=calls)


async def write_all(service: Service, uri: str) -> None:
    """The tasks of a job; of empty files, which take few requests each."""
    job = await committer.open_job(uri, job_id="J", config=rate(0), storage_options=service.options)

    async def write(task: int) -> None:
        async with job.task_attempt(task) as attempt:
            for number in range(task * FILES_A_TASK, (task + 1) * FILES_A_TASK):
                async with attempt.open(name(number)):
                    pass

    await asyncio.gather(*(write(task) for task in range(service.tasks)))
    await job.close()


async def test_thousands_of_files_committed_too_fast(service: Service) -> None:
    remote, uri = service.remote, service.remote.uri("table")
    await write_all(service, uri)
    await asyncio.to_thread(remote.control, "POST", "rate", {"rate": service.rate})
    await asyncio.to_thread(remote.control, "DELETE", "counters")

    config = rate(TOO_FAST * service.rate)
    async with committer.attach_job(uri, job_id="J", config=config, storage_options=service.options) as job:
        report = await job.commit(tasks=service.tasks)

    counted = await asyncio.to_thread(remote.control, "GET", "counters")
    await asyncio.to_thread(remote.control, "POST", "rate", {"rate": 0})
    assert (report.success, report.files_committed, report.renames_recovered) == (True, service.files, 0)
    found = await asyncio.to_thread(remote.sizes, "table")
    assert found.keys() == {"_SUCCESS", *(name(number) for number in range(service.files))}
    served = {second["second"]: second["served"] for second in counted["seconds"]}
    settled = [served.get(second, 0) for second in range(SETTLED_S, max(served))]
    # 0.95 where nothing else runs, as tests/flow/test_throttling_server.py asserts in virtual time; other tests beside it
    # take their share of the machine.
    assert sum(settled) >= 0.5 * service.rate * len(settled)
    assert len(settled) >= SETTLED_S
    # It did begin too fast, and what was refused is what the job counted.
    assert counted["throttled"] == report.statistics.counters["store_io_throttled"] > 0
    operation, status = service.rename
    renamed = await asyncio.to_thread(remote.control, "GET", f"requests?operation={operation}&status={status}")
    files = [one["source"] for one in renamed if "/tasks/" in one["source"]]
    assert len(files) == len(set(files)) == service.files
