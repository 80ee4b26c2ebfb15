"""What a job does on a service that lacks an ability: it is refused before anything is written, or ends as elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer.cli.doctor import Doctor
from committer.errors import TargetExistsError, UnsupportedError
from committer.paths import StorePath
from committer.stores.s3 import S3Store
from tests.s3.bucket import BucketChannel, options_for
from tests.s3.jobs import Jobs
from tests.s3.lax import SERVICES, service
from tests.s3.servers import Server

REFUSING = [name for name, lax in SERVICES.items() if lax.refuses]
SAFE = [name for name, lax in SERVICES.items() if not lax.refuses]
OTHERS = {"x": b"of another job", "kept": b"of another job"}
# moto checks neither signatures nor checksums, and no condition of a batch.
MOTOS_OWN = {"digest of a body", "checksum of a part", "conditional batch delete"}
PROBED = {"conditional put", "conditional completion", "conditional replace", "stamp", "list of uploads"}


@pytest.fixture
async def channel(moto_server: Server, root: StorePath) -> BucketChannel:
    channel = BucketChannel(moto_server.client, root)
    for name, data in OTHERS.items():
        await channel.write(name, data)
    return channel


@pytest.mark.parametrize("kind", ["magic", "directory", "partitioned"])
@pytest.mark.parametrize("name", REFUSING)
async def test_a_job_is_refused_before_it_writes_anything(
    name: str, kind: str, channel: BucketChannel, moto_server: Server, root: StorePath, tmp_path: Path
) -> None:
    async with service(name, moto_server) as (server, _proxy):
        jobs = Jobs(kind, server, root, tmp_path)
        with pytest.raises(UnsupportedError) as caught:
            await jobs.commit({"x": b"new", "y": b"new"}, existing_target="replace")
    assert caught.value.outcome == "unchanged"
    assert caught.value.next_step
    assert (await channel.files(), await channel.uploads()) == (OTHERS, [])


@pytest.mark.parametrize("name", REFUSING)
async def test_a_job_that_hadoop_set_up_is_refused_before_it_is_decided(
    name: str, channel: BucketChannel, moto_server: Server, root: StorePath
) -> None:
    """Hadoop's setup tries nothing; its committer replaces what is there, and deletes without a condition."""
    await channel.write("__magic_job-J/job-J/00/", b"")
    spec = committer.JobSpec.for_hadoop(root, "J")
    async with service(name, moto_server) as (server, _proxy):
        options = options_for(server)
        async with committer.open_task(spec, task=0, storage_options=options) as task, task.open("x") as file:
            await file.write(b"new")
        async with committer.attach_job(spec, storage_options=options) as job:
            with pytest.raises(UnsupportedError) as caught:
                await job.commit(tasks=1)
    assert caught.value.outcome == "unchanged"
    files = await channel.files()
    assert {key: data for key, data in files.items() if not key.startswith("__magic_job-J/")} == OTHERS
    # Nothing was decided: where the service can do all of it, the job goes on.
    async with committer.attach_job(spec, storage_options=options_for(moto_server)) as again:
        with pytest.raises(TargetExistsError):
            await again.commit(tasks=1)
        await again.abort()
    assert (await channel.files(), await channel.uploads()) == (OTHERS, [])


@pytest.mark.parametrize("name", SAFE)
async def test_a_job_ends_as_elsewhere(
    name: str, channel: BucketChannel, moto_server: Server, root: StorePath, tmp_path: Path
) -> None:
    beside = StorePath(root.scheme, root.authority, f"{root.path}10/file")
    plain = S3Store.open_for(root, options_for(moto_server))
    elsewhere = await plain.create_upload(beside, stamp="another-job")
    async with service(name, moto_server) as (server, _proxy):
        jobs = Jobs("magic", server, root, tmp_path)
        with pytest.raises(TargetExistsError):
            await jobs.commit({"y": b"rolled back", "x": b"in the way"})
        assert (await channel.files(), await channel.uploads()) == (OTHERS, [])
        await jobs.commit({f"d/{number}": b"new" for number in range(20)})
        report = await jobs.commit({"z": b"newest"}, conflict_mode="replace")
    assert report.success
    files = await channel.files()
    del files["_SUCCESS"]
    assert (files, await channel.uploads()) == ({"z": b"newest"}, [])
    # Another dataset's upload is no business of these jobs.
    assert await plain.abort_upload(beside, elsewhere)
    await plain.close()


@pytest.mark.parametrize("name", list(SERVICES))
async def test_the_doctor_names_what_is_lacking(
    name: str, channel: BucketChannel, moto_server: Server, root: StorePath
) -> None:
    async with service(name, moto_server) as (server, _proxy):
        store = S3Store.open_for(root, options_for(server))
        checks = {check.name: check for check in await Doctor(store, root).examine()}
        await store.close()
    lax = SERVICES[name]
    if lax.lacks:
        shown = checks[lax.lacks]
        assert (shown.verdict, bool(shown.next_step)) == ("failed" if lax.refuses else "warning", True)
    assert (checks["the store's own probe"].verdict == "failed") is (lax.lacks in PROBED)
    wrong = {check.name for check in checks.values() if check.verdict in ("failed", "warning")}
    puts = {"conditional put", "puts at once", "create exclusively"}
    completions = {"conditional completion", "completions at once"}
    same = next((names for names in (puts, completions) if lax.lacks in names), {lax.lacks} - {""})
    assert same <= wrong
    # What moto lets succeed at the same moment is a matter of luck.
    assert wrong - MOTOS_OWN - {"the store's own probe", "completions at once"} == same - {"completions at once"}
    assert (await channel.files(), await channel.uploads()) == (OTHERS, [])
