"""Twin of Hadoop's ITestCommitOperationCost and ITestUploadRecovery on a server: requests as they are sent.

By calls of the store `tests/committers/test_commit_operations.py` tries the same, and says what else proves those suites.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

import committer
from committer import CommitterConfig
from committer.paths import StorePath
from tests.s3.bucket import BucketChannel, options_for
from tests.s3.proxy import Proxy, Seen, Trouble, refusal
from tests.s3.servers import Server

PART = 5 << 20


@pytest.fixture
def options(proxy: Proxy) -> dict[str, object]:
    return options_for(Server("proxy", proxy.url))


def kind_of(one: Seen) -> str:
    """What a request asks for."""
    return next(
        (name for name in ("uploads", "partNumber", "uploadId", "list-type", "delete") if name in one.query), ""
    )


async def requests_of(
    proxy: Proxy, root: StorePath, options: dict[str, object], delivery: str, files: int
) -> Counter[str]:
    """The requests of a job of one task with this many files."""
    proxy.seen.clear()
    destination = root / f"{files}-files"
    async with committer.open_job(destination, delivery=delivery, storage_options=options) as job:  # type: ignore[arg-type]
        async with job.task_attempt(0) as task:
            for number in range(files):
                async with task.open(f"{number}") as file:
                    await file.write(b"x")
        assert (await job.commit(tasks=1)).files_committed == files
    return Counter(f"{one.method} {kind_of(one)}".strip() for one in proxy.seen)


@pytest.mark.parametrize("delivery", ["message", "listing"])
async def test_requests_of_a_file(delivery: str, proxy: Proxy, root: StorePath, options: dict[str, object]) -> None:
    """HADOOP-17833: no HEAD; and nothing but the completion while the job is committed."""
    # Twice each: a server that is busy now and then has a listing be asked for once more.
    few, many = [
        await requests_of(proxy, root / "once", options, delivery, files)
        & await requests_of(proxy, root / "again", options, delivery, files)
        for files in (5, 7)
    ]
    # Begun, listed, its job looked at, sent, completed; and, for Hadoop's abort, a marker and a record.
    puts = 3 if delivery == "listing" else 1
    file = {"POST uploads": 1, "PUT": puts, "GET list-type": 1, "PUT partNumber": 1, "POST uploadId": 1}
    assert many - few == {name: 2 * requests for name, requests in file.items()}


async def test_parts_that_fail_once(
    proxy: Proxy, root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    """HADOOP-19221: a part whose request the service gave up reading, one that is lost, one whose answer is."""
    data = random.Random(1).randbytes(2 * PART + 3)
    config = CommitterConfig(multipart_size=PART)
    async with committer.open_job(root, config=config, storage_options=options) as job, job.task_attempt(0) as task:
        proxy.seen.clear()
        proxy.troubles = [
            Trouble("answer", method="PUT", query="partNumber=1", status=400, body=refusal("RequestTimeout")),
            Trouble("lose request", method="PUT", query="partNumber=2"),
            Trouble("lose answer", method="PUT", query="partNumber=3"),
        ]
        async with task.open("x") as file:
            await file.write(data)
        assert [proxy.count("PUT", f"partNumber={number}") for number in (1, 2, 3)] == [2, 2, 2]
    assert (await channel.files())["x"] == data
    assert await channel.uploads() == []


async def test_every_kind_of_request_is_throttled_once(
    proxy: Proxy, root: StorePath, channel: BucketChannel, options: dict[str, object]
) -> None:
    """Of a job with an attempt that is aborted and one that is committed."""
    kinds = (
        "POST uploads", "PUT", "PUT partNumber", "GET list-type", "DELETE uploadId", "GET uploadId", "POST uploadId",
        "GET uploads", "POST delete",
    )  # fmt: skip
    files = {"empty": b"", "a=1/small": b"small"}
    job = await committer.open_job(root, delivery="listing", storage_options=options)
    proxy.troubles = [
        # Else the endpoint would rest for a while each time.
        Trouble(
            "answer", method=method, query=query, status=503, body=refusal("SlowDown"), headers={"Retry-After": "0"}
        )
        for method, _, query in (kind.partition(" ") for kind in kinds)
    ]
    attempts = [await job.task_attempt(0, attempt) for attempt in range(2)]
    for attempt in attempts:
        for name, data in files.items():
            async with attempt.open(name) as file:
                await file.write(data)
    await attempts[0].abort()
    await attempts[1].commit()
    await job.commit(tasks=1)
    await job.close()
    assert [trouble for trouble in proxy.troubles if trouble.times] == []
    assert {name: data for name, data in (await channel.files()).items() if name != "_SUCCESS"} == files
    assert await channel.uploads() == []
