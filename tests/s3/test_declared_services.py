"""Jobs on services without conditional deletes that the storage option `service` declares: MinIO and Alibaba OSS."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.cli.doctor import Doctor
from committer.errors import CommitterError, ConfigurationError, PreflightError, TargetExistsError, UnsupportedError
from committer.paths import StorePath
from committer.stores.s3 import S3Store
from committer.testing.faults import Call, FaultyStore, SimulatedCrash
from tests.s3.bucket import BucketChannel, options_for
from tests.s3.lax import declared
from tests.s3.proxy import Forgotten, Proxy
from tests.s3.servers import Server

UUID = "0a0b0c0d-1111-2222-3333-444455556666"
REPLACES = CommitterConfig(conflict_mode="replace")


class Place:
    """One declared service.

    Attributes:
        name: The service.
        server: Where it is.
        proxy: Before it; None before a server of its own.
        root: Where jobs write.
        channel: The way around the store.
    """

    def __init__(self, name: str, server: Server, proxy: Proxy | None, root: StorePath) -> None:
        self.name, self.server, self.proxy, self.root = name, server, proxy, root
        self.channel = BucketChannel(server.client, root)
        # The test servers are reached by their address: they have no name for each bucket.
        self.options = options_for(server, service=name, addressing_style="path")

    async def commit(
        self, files: dict[str, bytes], *, config: CommitterConfig | None = None, store: Any = None, job_id: str = "J"
    ) -> committer.JobReport:
        options = self.options if store is None else {"store": store}
        async with committer.open_job(self.root, job_id=job_id, config=config, storage_options=options) as job:
            async with job.task_attempt(0) as task:
                for name, data in files.items():
                    async with task.open(name) as file:
                        await file.write(data)
            return await job.commit(tasks=1)

    async def files(self) -> dict[str, bytes]:
        """The files, but for `_SUCCESS`, without the nonces in their names."""
        files = await self.channel.files()
        return {re.sub(r"-[0-9a-f]{20}(?=\.|$)", "", name): data for name, data in files.items() if name != "_SUCCESS"}


@pytest.fixture(params=["minio", "oss", "MinIO"])
async def place(request: pytest.FixtureRequest, moto_server: Server, root: StorePath) -> AsyncIterator[Place]:
    if request.param == "MinIO":
        yield Place("minio", request.getfixturevalue("minio_server"), None, root)
        return
    async with declared(request.param, moto_server) as (server, proxy):
        yield Place(request.param, server, proxy, root)


async def test_two_jobs_of_one_id_share_no_name(place: Place) -> None:
    for number in range(2):
        report = await place.commit({"p=1/x.csv": b"%d" % number})
        assert (report.success, report.files_committed) == (True, 1)
    found = await place.channel.files()
    assert json.loads(found.pop("_SUCCESS"))["jobId"] == "J"
    assert sorted(found.values()) == [b"0", b"1"]
    assert all(re.fullmatch(r"p=1/x-J-[0-9a-f]{20}\.csv", name) for name in found)
    assert await place.channel.uploads() == [] or place.proxy is None
    assert (await committer.validate(place.root, storage_options=place.options)).ok


async def test_no_request_carries_a_condition_that_oss_does_not_know(place: Place) -> None:
    await place.commit({"x": b"1"})
    await place.commit({"x": b"2"}, config=REPLACES)
    seen = place.proxy.seen if place.proxy is not None and place.name == "oss" else []
    assert not [one for one in seen if {"if-match", "if-none-match"} & one.headers.keys()]
    if seen:
        forbidding = [one for one in seen if one.headers.get("x-oss-forbid-overwrite") == "true"]
        assert {one.method for one in forbidding} == {"PUT", "POST"}
    assert await place.files() == {"x-J": b"2"}


async def test_old_files_go_whose_names_no_program_uses_again(place: Place) -> None:
    await place.channel.write(f"p=1/part-0-{UUID}.csv", b"of Spark")
    await place.commit({"p=1/x.csv": b"old"}, job_id="first")
    await place.commit({"p=1/x.csv": b"new"}, config=REPLACES)
    assert await place.files() == {"p=1/x-J.csv": b"new"}


@pytest.mark.parametrize("name", ["p=1/data.csv", "p=1/0a0b0c0d.csv", "_metadata"])
async def test_old_files_of_other_names_are_refused(name: str, place: Place) -> None:
    await place.channel.write(name, b"of a program")
    with pytest.raises(TargetExistsError, match="deleted by its name") as caught:
        await place.commit({"p=1/x.csv": b"new"}, config=REPLACES)
    assert (caught.value.outcome, caught.value.conflicts[0].split()[0]) == ("unchanged", name)
    assert await place.files() == {name: b"of a program"}


async def test_a_name_without_the_jobs_token_is_refused(place: Place) -> None:
    """A process that was not told of the service, or a task of Hadoop's, does not know the token."""
    plain = options_for(place.server)
    async with committer.open_job(place.root, job_id="J", storage_options=place.options) as job:
        async with committer.open_task(job.spec, task=0, storage_options=plain) as task, task.open("x") as file:
            await file.write(b"1")
        with pytest.raises(PreflightError, match="lacks the job's token"):
            await job.commit(tasks=1)
        await job.abort()
    assert await place.channel.files() == {}


async def test_a_job_that_hadoop_set_up_is_refused(place: Place) -> None:
    await place.channel.write("__magic_job-J/job-J/00/", b"")
    spec = committer.JobSpec.for_hadoop(place.root, "J")
    with pytest.raises(UnsupportedError, match="may have names that other jobs use") as caught:
        await committer.attach_job(spec, storage_options=place.options)
    assert (caught.value.outcome, bool(caught.value.next_step)) == ("unchanged", True)


async def test_without_the_declaration_the_error_names_it(place: Place) -> None:
    with pytest.raises(UnsupportedError) as caught:
        await committer.open_job(place.root, storage_options=options_for(place.server))
    assert caught.value.outcome == "unchanged"
    assert "service" in caught.value.next_step
    assert await place.channel.files() == {}


@pytest.mark.parametrize("kind", ["directory", "partitioned", "stocator"])
async def test_other_committers_are_refused(kind: str, place: Place) -> None:
    with pytest.raises(UnsupportedError, match="delete a file on the condition"):
        await committer.open_job(place.root, committer=kind, storage_options=place.options)
    assert await place.channel.files() == {}


@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_a_bucket_that_ignores_the_header_is_refused(method: str, moto_server: Server, root: StorePath) -> None:
    """As OSS does where the bucket keeps versions."""
    async with declared("oss", moto_server) as (server, proxy):
        proxy.forgets = [Forgotten(method, "x-oss-forbid-overwrite")]
        with pytest.raises(UnsupportedError, match="replace what it was told not to replace") as caught:
            await committer.open_job(root, storage_options=options_for(server, service="oss", addressing_style="path"))
    assert caught.value.outcome == "unchanged"
    assert await BucketChannel(moto_server.client, root).files() == {}


async def test_an_oss_path_declares_the_service(moto_server: Server, root: StorePath) -> None:
    oss = StorePath("oss", root.authority, root.path)
    async with declared("oss", moto_server) as (server, _proxy):
        options = options_for(server, addressing_style="path")
        async with committer.open_job(oss, storage_options=options) as job:
            async with job.task_attempt(0) as task, task.open("x") as file:
                await file.write(b"1")
            assert (await job.commit(tasks=1)).files_committed == 1
    with pytest.raises(ConfigurationError, match="has no endpoint_url"):
        await committer.open_job(oss, storage_options={"access_key_id": "a", "secret_access_key": "b"})


async def test_the_doctor_says_what_holds(place: Place) -> None:
    store = S3Store.open_for(place.root, place.options)
    checks = {check.name: check for check in await Doctor(store, place.root).examine()}
    await store.close()
    assert checks["the store's own probe"].verdict == "ok"
    assert not {"conditional delete", "conditional batch delete"} & checks.keys()
    assert ("conditional replace" in checks) is (place.name == "minio")
    assert "failed" not in {check.verdict for name, check in checks.items() if not name.endswith("at once")}


# -- drivers that die ------------------------------------------------------------------------------------------------


async def killed(place: Place, dies_at: int, config: CommitterConfig | None) -> bool:
    """Whether a driver died before that call of its commit."""
    store, begun = FaultyStore(S3Store.open_for(place.root, place.options)), False

    async def die(call: Call) -> None:
        if begun and call.number >= first + dies_at:
            raise SimulatedCrash

    first = 0
    store.before_call = die
    try:
        job = await committer.open_job(place.root, job_id="J", config=config, storage_options={"store": store})
        async with job.task_attempt(0) as task:
            for name in ("p=1/a", "p=2/b"):
                async with task.open(name) as file:
                    await file.write(name.encode())
        first, begun = len(store.calls), True
        await job.commit(tasks=1)
    except (SimulatedCrash, CommitterError):
        return True
    finally:
        await store.inner.close()
    return False


@pytest.mark.parametrize("rollback", [False, True])
@pytest.mark.parametrize("moment", range(0, 40, 3))
async def test_a_driver_that_died_is_followed_by_another(moment: int, rollback: bool, place: Place) -> None:
    await place.commit({"p=1/old": b"old"}, job_id="first")
    before = await place.channel.files()
    died = await killed(place, moment, None if rollback else REPLACES)
    try:
        report = await committer.recover(place.root, "J", rollback=rollback, storage_options=place.options)
        success = report.success
    except CommitterError as error:
        # Before its intent a job has nothing to recover; a job that committed is not rolled back.
        assert error.outcome in ("unchanged", "committed"), error
        success = error.outcome == "committed"
        if success:
            await committer.recover(place.root, "J", storage_options=place.options)
        else:
            await committer.cleanup(place.root, job_id="J", force=True, storage_options=place.options)
    files = await place.files()
    new = {"p=1/a-J": b"p=1/a", "p=2/b-J": b"p=2/b"}
    if success:
        assert files == (new | {"p=1/old-first": b"old"} if rollback else new)
    else:
        assert files == {"p=1/old-first": b"old"}
        assert (await place.channel.files())["_SUCCESS"].rstrip() == before["_SUCCESS"].rstrip()
    assert died or success
    if place.proxy is not None:
        assert await place.channel.uploads() == []
