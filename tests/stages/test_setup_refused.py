"""A setup whose first call is refused or cannot be made: the error says what is wrong, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

import committer
from committer import CommitterConfig
from committer.committers.manifest import ManifestCommitter
from committer.committers.registry import register_committer, unregister_committer
from committer.errors import ConfigurationError, StorePermissionError, StoreUnavailableError, UnsupportedError
from committer.testing.faults import Call, FaultyStore
from tests.free_ports import free_port
from tests.neighbours.meeting import Table

NOT_SET = "env:LAKE_NAME_THAT_IS_NOT_SET"
WITHOUT_CREDENTIALS: dict[str, Mapping[str, object]] = {
    "s3://lake/table": {"access_key_id": NOT_SET, "secret_access_key": NOT_SET},
    "gs://lake/table": {"token": NOT_SET},
    "abfss://data@account.dfs.core.windows.net/table": {"account_key": NOT_SET},
}


@pytest.mark.parametrize("dest", WITHOUT_CREDENTIALS, ids=lambda dest: dest.partition(":")[0])
async def test_missing_credentials_are_all_the_error_speaks_of(dest: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigurationError, match="which is not set") as caught:
        await committer.open_job(dest, storage_options=WITHOUT_CREDENTIALS[dest])
    assert "may still be there" not in caught.value.message
    assert "cleanup" not in caught.value.next_step
    assert caught.value.outcome == "unchanged"
    assert caplog.records == []


async def test_a_server_that_is_not_there_is_asked_for_one_thing_only(caplog: pytest.LogCaptureFixture) -> None:
    options = {"endpoint": f"http://127.0.0.1:{free_port()}"}
    with pytest.raises(StoreUnavailableError) as caught:
        await committer.open_job("gs://lake/table", storage_options=options)
    assert "may still be there" not in caught.value.message
    assert "cleanup" not in caught.value.next_step
    assert caplog.records == []


def _first_call(call: Call) -> bool:
    return True


def _setup_record(call: Call) -> bool:
    return call.operation == "put"


@pytest.mark.parametrize("profile", ["local", "adls", "gcs", "s3"])
@pytest.mark.parametrize(("refused", "looks"), [(_first_call, False), (_setup_record, True)])
async def test_what_may_have_been_made_is_sought(profile: str, refused: Callable[[Call], bool], looks: bool) -> None:
    """Where no call that makes something was sent, nothing is; where one was, what is left of it goes."""
    table = Table(profile)
    store = FaultyStore(table.space.store())
    calls: list[str] = []

    async def before(call: Call) -> None:
        # No call; and the look at the destination, which is sent at once with the first one.
        beside = call.operation == "make_directory" or call.path == table.space.path("table")
        if beside and not store.capabilities.directories:
            return
        if refused(call) and "refused" not in calls:
            calls.append("refused")
            raise StorePermissionError("no right", operation=call.operation, path=call.path)
        calls.append(call.operation)

    store.before_call = before
    with pytest.raises(StorePermissionError) as caught:
        await committer.open_job(table.dest, storage_options={"store": store})
    assert caught.value.message == "no right"
    # Without directories the setup record is the first thing that is made.
    looks = looks and store.capabilities.directories
    assert bool(calls[calls.index("refused") + 1 :]) == looks
    assert table.temporary() == set()


# -- going on with a job whose committer, as its setup record says, is not known ----------------------------------------


OLD = {"part-0": b"old", "part-1": b"old"}
CONFIG = CommitterConfig(conflict_mode="replace")


async def _set_up(table: Table, name: str | None = None) -> None:
    job = await committer.open_job(
        table.dest, job_id="job", committer=name, config=CONFIG, storage_options=table.options
    )
    async with (
        committer.open_task(job.spec, task=0, storage_options=table.options) as task,
        task.open("part-0") as file,
    ):
        await file.write(b"new")
    await job.close()


class _Own(ManifestCommitter):
    name = "own"


@pytest.fixture
def registered() -> Iterator[None]:
    register_committer(_Own)
    yield
    unregister_committer(_Own.name)


@pytest.mark.usefixtures("registered")
async def test_recover_where_the_committer_is_not_registered() -> None:
    """The first advice of the error works when followed."""
    table = Table("local", OLD)
    await _set_up(table, _Own.name)
    unregister_committer(_Own.name)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="'own' is unknown in this process") as caught:
            await committer.recover(table.dest, "job", rollback=True, storage_options=table.options)
        assert "committer.committers.registry.register_committer" in caught.value.next_step
    assert [info.committer for info in await committer.list_jobs(table.dest, storage_options=table.options)] == ["own"]
    register_committer(_Own)
    report = await committer.recover(table.dest, "job", rollback=True, storage_options=table.options)
    assert not report.success
    assert table.files() == OLD
