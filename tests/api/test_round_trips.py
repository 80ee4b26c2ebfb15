"""How many store calls of a job commit wait for one another: every call takes a second of a clock that only waits move.

`docs/decisions/where-the-time-goes.md` says of each what it waits for. A change that adds one has to say why, there.
"""

from __future__ import annotations

import asyncio

import pytest

import committer
from committer.testing.faults import Call
from committer_testing.virtual_loop import virtual_loop
from tests.neighbours.meeting import Connection, Table

TASKS = 3

# Profile: round trips by message, calls; by listing, both.
EXPECTED = {
    "local": (20, 38, 23, 42),
    "hdfs": (17, 33, 20, 37),
    "adls": (19, 36, 22, 40),
    "gcs": (19, 35, 22, 39),
    "s3": (23, 41, 29, 47),
}


async def commit(profile: str, delivery: str) -> tuple[int, int]:
    """Commits a job of a few tasks into an empty destination; its round trips, and its calls."""
    table = Table(profile)
    job = await committer.open_job(table.dest, job_id="job", delivery=delivery, storage_options=table.options)
    messages = []
    for number in range(TASKS):
        async with committer.open_task(job.spec, task=number, storage_options=table.options) as task:
            for value in range(2):
                async with task.open(f"d={value}/part-{number}-{value}") as file:
                    await file.write(b"x")
        messages.append(task.task_commit)
    store = Connection(table.space)
    driver = await committer.attach_job(job.spec, storage_options={"store": store})
    store.calls.clear()

    async def takes_a_second(_call: Call) -> None:
        await asyncio.sleep(1)

    store.before_call = takes_a_second
    began = asyncio.get_running_loop().time()
    await driver.commit(messages if delivery == "message" else None, tasks=TASKS)
    assert len(table.files()) == 2 * TASKS
    assert table.temporary() == set()
    return round(asyncio.get_running_loop().time() - began), len(store.calls)


def counted(profile: str, delivery: str) -> tuple[int, int]:
    with virtual_loop() as loop:
        return loop.run_until_complete(commit(profile, delivery))


@pytest.mark.parametrize("profile", EXPECTED)
def test_a_job_commit_waits_for_few_round_trips(profile: str) -> None:
    expected = EXPECTED[profile]
    assert counted(profile, "message") == expected[:2]
    assert counted(profile, "listing") == expected[2:]
