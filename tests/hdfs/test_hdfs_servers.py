"""Servers die and take over in the middle of a job: each job ends as it must."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest

import committer
from committer.errors import CommitterError, StoreError
from committer.paths import StorePath
from committer.stores.hdfs import HdfsStore
from tests.hdfs.channel import JavaChannel
from tests.hdfs.servers import NAMESERVICE, Servers
from tests.hdfs.small_job import FILES, write_tasks
from tests.interop.jvm import Jvm

_numbers = itertools.count()


@pytest.fixture(scope="module")
def servers(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(jvm, tmp_path_factory.mktemp("servers"))
    try:
        servers.start()
        yield servers
    finally:
        servers.close()


@pytest.fixture
def table(servers: Servers) -> JavaChannel:
    # A NameNode that was started again waits for what the DataNodes report.
    servers.wait_until_whole()
    return JavaChannel(servers, StorePath("hdfs", NAMESERVICE, f"/table-{next(_numbers)}"))


class Interrupted(HdfsStore):
    """A store on which something happens once half of a batch of renames is done."""

    event: Callable[[], object]
    happening: asyncio.Task[object] | None = None

    async def rename_files(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        *,
        seen: Sequence[tuple[str | None, int]] | None = None,
        looks: bool = True,
    ) -> dict[int, StoreError]:
        half = len(renames) // 2
        errors = await super().rename_files(renames[:half], seen=seen and seen[:half], looks=looks)
        self.happening = asyncio.create_task(asyncio.to_thread(self.event))
        later = await super().rename_files(renames[half:], seen=seen and seen[half:], looks=looks)
        return errors | {half + index: error for index, error in later.items()}


def hand_over(servers: Servers) -> None:
    servers.make_standby("nn1")
    servers.make_active("nn2")


def take_over(servers: Servers) -> None:
    servers.kill("nn1")
    servers.make_active("nn2")


def start_again(servers: Servers) -> None:
    servers.kill("nn1")
    servers.restart("nn1")
    servers.make_active("nn1")


def as_before(servers: Servers) -> None:
    """Has the first NameNode be the active one."""
    if not servers.runs("nn1"):
        servers.restart("nn1")
    servers.make_standby("nn2")
    servers.make_active("nn1")


@pytest.mark.parametrize("event", [hand_over, take_over, start_again])
async def test_name_nodes_change_in_the_middle_of_a_commit(
    servers: Servers, table: JavaChannel, event: Callable[[Servers], None]
) -> None:
    """What was under way is unknown, and looked at; what is refused for now is tried again, or `recover` goes on."""
    uri = table.root.uri
    options = {"config_directory": str(servers.configuration)}
    store = Interrupted(NAMESERVICE, config_directory=str(servers.configuration))
    store.event = lambda: event(servers)
    try:
        async with committer.open_job(uri, job_id="J", storage_options={"store": store}) as job:
            await write_tasks(job)
            report = await job.commit(tasks=3)
    except CommitterError as error:
        assert error.next_step, error
        assert store.happening is not None
        await store.happening
        report = await committer.recover(uri, "J", storage_options=options)
    assert store.happening is not None
    await store.happening
    await store.close()
    assert (report.success, report.files_committed) == (True, len(FILES))
    assert (await committer.validate(uri, storage_options=options)).ok
    found = await table.files()
    assert b'"jobId" : "J"' in found.pop("_SUCCESS")
    assert found == FILES
    await asyncio.to_thread(as_before, servers)


async def test_a_data_node_is_lost_while_tasks_write(servers: Servers, table: JavaChannel) -> None:
    """A pipeline that breaks is mended by the client; a task that is given the lost one for a new block is run again."""
    options = {"config_directory": str(servers.configuration)}
    block = bytes(range(256)) * (1 << 12)

    async def run_task(job: committer.Job, number: int, begun: asyncio.Event) -> None:
        for attempt in range(30):
            try:
                async with job.task_attempt(number, attempt) as task, task.open(f"part-{number}") as file:
                    for _block in range(3):
                        await file.write(block)
                        begun.set()
                        await asyncio.sleep(0.05)
                return
            except CommitterError:
                await asyncio.sleep(1)
        raise AssertionError(f"task {number} failed too often")

    job = await committer.open_job(table.root.uri, storage_options=options)
    try:
        # A file that the NameNode had to place on one DataNode alone is lost with that.
        setup = job.spec.layout.setup
        await asyncio.to_thread(servers.wait_until_on_both, setup.path)
        begun = asyncio.Event()
        tasks = [asyncio.create_task(run_task(job, number, begun)) for number in range(4)]
        await begun.wait()
        await asyncio.to_thread(servers.kill, "dn2")
        await asyncio.gather(*tasks)
        report = await job.commit(tasks=4)
    finally:
        await asyncio.to_thread(servers.restart, "dn2")
        await job.close()
    assert (report.success, report.files_committed) == (True, 4)
    found = await table.files()
    del found["_SUCCESS"]
    assert found == {f"part-{number}": block * 3 for number in range(4)}
