"""The store for abfs: paths beyond the suite: what it sends, and what it makes of what the service does."""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator
from typing import Literal

import pytest

import committer
from committer.errors import (
    ConfigurationError,
    DestinationNotFoundError,
    InvalidPathError,
    StoreConflictError,
    StoreError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StorePreconditionError,
    StoreThrottledError,
    StoreUnavailableError,
    TaskError,
    UnsupportedError,
)
from committer.events import Statistics
from committer.flow.pacing import Pacer
from committer.logs import audit
from committer.paths import StorePath
from committer.stores.adls import AdlsStore
from committer.stores.adls import writer as adls_writer
from committer.stores.paced import PacedStore
from committer.stores.registry import open_store
from committer_testing.emulators.adls import AdlsEmulator, Fault, Settings
from committer_testing.emulators.adls.nodes import Node
from tests.stores.adls_account import ROOT, AccountChannel, account_fixture, make, requests, serve_store, store_on

pytestmark = pytest.mark.every_loop

one_loop = pytest.mark.asyncio(loop_factories=["asyncio"])


emulator = account_fixture()


@pytest.fixture
async def store(emulator: AdlsEmulator) -> AsyncIterator[AdlsStore]:
    store = store_on(emulator)
    # A connection that is kept: only on such a one does aiohttp send a request again by itself.
    await store.status(ROOT)
    emulator.conduct.log.clear()
    yield store
    await store.close()


@pytest.fixture
def channel(emulator: AdlsEmulator) -> AccountChannel:
    return AccountChannel(emulator)


# --- What goes over the wire --------------------------------------------------------------------------------------


async def test_calls_that_are_one_request_and_a_small_file_which_is_two(
    store: AdlsStore, emulator: AdlsEmulator
) -> None:
    status = await store.put(ROOT / "record", b"data", exclusive=True)
    await store.rename_file(ROOT / "record", ROOT / "renamed", identity=status.identity)
    await store.make_directory(ROOT / "a/b", parents=True)
    await store.status(ROOT / "renamed")
    assert status.identity is not None
    await store.delete_file_if(ROOT / "renamed", identity=status.identity)
    assert requests(emulator) == ["put-blob", "rename", "create-directory", "get-status", "delete"]
    writer = await store.open_writer(ROOT / "small")
    await writer.write(b"data")
    await writer.close()
    await (await store.open_writer(ROOT / "empty")).close()
    assert requests(emulator)[5:] == ["create-file", "append", "create-file"]


async def test_a_large_file_goes_by_the_chunk(
    store: AdlsStore, emulator: AdlsEmulator, channel: AccountChannel
) -> None:
    data = bytes(range(256)) * (3 << 12)
    writer = await store.open_writer(ROOT / "large")
    for start in range(0, len(data), 1 << 20):
        await writer.write(data[start : start + (1 << 20)])
        assert (await channel.files())["large"] == b"", "nothing of it is seen before it is closed"
    for _ in range(6):
        await writer.write(data)
    await writer.close()
    assert (await channel.files())["large"] == data * 7
    assert requests(emulator).count("append") == 3


async def test_job_task_and_stage_travel_with_each_request(store: AdlsStore, emulator: AdlsEmulator) -> None:
    with audit(ji="job-1", ta="attempt_1 \r\nx: y ü", st="commit"):
        await store.status(ROOT)
        await store.status(ROOT)
    first, second = (entry.client_request_id for entry in emulator.conduct.log)
    assert first.endswith(";ji=job-1;ta=attempt_1%20%0D%0Ax%3A%20y%20%C3%BC;st=commit")
    assert first != second
    assert emulator.conduct.log[0].user_agent.startswith("lake-committer/")


# --- Lost answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["rename", "put-blob", "delete", "create-directory", "append", "create-file"])
async def test_no_change_is_ever_sent_again_by_itself(store: AdlsStore, emulator: AdlsEmulator, operation: str) -> None:
    status = await store.put(ROOT / "file", b"1")
    assert status.identity is not None
    emulator.conduct.faults.append(Fault("reset-after", operation=operation))
    emulator.conduct.log.clear()

    async def append() -> None:
        await (await store.open_writer(ROOT / "new")).write(bytes(9 << 20))

    changes = {
        "rename": lambda: store.rename_file(ROOT / "file", ROOT / "new", identity=status.identity),
        "put-blob": lambda: store.put(ROOT / "new", b"2", exclusive=True),
        "delete": lambda: store.delete_file_if(ROOT / "file", identity=str(status.identity)),
        "create-directory": lambda: store.make_directory(ROOT / "d", parents=True),
        "append": append,
        "create-file": lambda: store.open_writer(ROOT / "new"),
    }
    with pytest.raises(StoreUnavailableError if operation == "append" else StoreOutcomeUnknownError) as caught:
        await changes[operation]()
    assert caught.value.outcome == ("unchanged" if operation == "append" else "unknown")
    assert requests(emulator, operation) == [operation]


async def test_aiohttp_itself_would_send_it_again(emulator: AdlsEmulator) -> None:
    """Without what keeps it from that; when this fails, the middleware in stores/http.py is no longer needed."""
    import aiohttp

    async with aiohttp.ClientSession() as session:
        async with session.head(f"{emulator.dfs_url}/data/x"):
            pass
        emulator.conduct.faults.append(Fault("reset"))
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.put(f"{emulator.dfs_url}/data/x?resource=file")
    assert requests(emulator, "create-file") == ["create-file"] * 2


async def test_reads_whose_answer_was_lost_changed_nothing(store: AdlsStore, emulator: AdlsEmulator) -> None:
    await store.put(ROOT / "file", b"1")
    emulator.conduct.faults.append(Fault("reset-after"))
    for call in (store.status(ROOT), store.read(ROOT / "file", limit=9), anext(aiter(store.list(ROOT)))):
        with pytest.raises(StoreUnavailableError) as caught:
            await call
        assert caught.value.outcome == "unchanged"


async def test_an_answer_that_does_not_come(emulator: AdlsEmulator) -> None:
    store = store_on(emulator)
    store._http._connect_s, store._http._answer_s = 0.1, 0.05
    status = await store.put(ROOT / "file", b"1")
    emulator.conduct.faults.append(Fault("latency-after", seconds=0.4))
    with pytest.raises(StoreOutcomeUnknownError):
        await store.rename_file(ROOT / "file", ROOT / "new", identity=status.identity)
    with pytest.raises(StoreUnavailableError):
        await store.status(ROOT)
    await store.close()


async def test_no_server_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/devstoreaccount1"
        store = AdlsStore.open_for(ROOT, {"endpoint": url, "account_key": "a2V5"})
        with pytest.raises(StoreUnavailableError, match="cannot be reached") as caught:
            await store.make_directory(ROOT / "d", parents=True)
        assert caught.value.outcome == "unchanged"
        await store.close()


async def test_a_rename_refused_after_it_was_done(store: AdlsStore, emulator: AdlsEmulator) -> None:
    """A front end of the service sent it twice: its second try found no source."""
    status = await store.put(ROOT / "file", b"1")
    await store.make_directory(ROOT / "d", parents=False)
    done = Fault("error-after", operation="rename", status=404, code="SourcePathNotFound", count=1)
    emulator.conduct.faults.append(done)
    # Asked for once more it is not done either, and that it was is as sure as before.
    for _ in range(2):
        with pytest.raises(StoreNotFoundError) as caught:
            await store.rename_file(ROOT / "file", ROOT / "new", identity=status.identity)
        assert (caught.value.path, caught.value.outcome) == (str(ROOT / "file"), "unknown")
    with pytest.raises(StoreNotFoundError) as caught:
        await store.rename_file(ROOT / "file", ROOT / "another", identity=status.identity)
    assert caught.value.outcome == "unchanged"
    done.hits = 0
    with pytest.raises(StoreOutcomeUnknownError):
        await store.rename_directory(ROOT / "d", ROOT / "e")
    # Without a look nothing tells whether the source was ever there.
    with pytest.raises(StoreNotFoundError) as caught:
        await store.rename_directory(ROOT / "d", ROOT / "e", known=True)
    assert caught.value.outcome == "unknown"
    with pytest.raises(StoreNotFoundError) as caught:
        await store.rename_directory(ROOT / "d", ROOT / "f", known=True)
    assert caught.value.outcome == "unchanged"


async def test_a_stale_view_of_the_source_is_repaired_once(store: AdlsStore, emulator: AdlsEmulator) -> None:
    status = await store.put(ROOT / "file", b"1")
    fault = Fault("error", operation="rename", status=404, code="RenameDestinationParentPathNotFound", count=1)
    emulator.conduct.faults.append(fault)
    await store.rename_file(ROOT / "file", ROOT / "new", identity=status.identity)
    assert requests(emulator)[-3:] == ["rename", "get-status", "rename"]
    fault.count = None
    with pytest.raises(StoreNotFoundError) as caught:
        await store.rename_file(ROOT / "new", ROOT / "newer", identity=status.identity)
    assert caught.value.path == str(ROOT / "newer")


# --- Refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "expected", "outcome"),
    [
        (503, "ServerBusy", StoreThrottledError, "unchanged"),
        (429, "TooManyRequests", StoreThrottledError, "unchanged"),
        (500, "InternalError", StoreOutcomeUnknownError, "unknown"),
        (500, "OperationTimedOut", StoreOutcomeUnknownError, "unknown"),
        # Not the service's own code: a gateway that lost its backend says the same.
        (503, "Unavailable", StoreOutcomeUnknownError, "unknown"),
        (502, "BadGateway", StoreOutcomeUnknownError, "unknown"),
        (401, "InvalidAuthenticationInfo", StorePermissionError, "unchanged"),
        (403, "AuthorizationPermissionMismatch", StorePermissionError, "unchanged"),
        (404, "FilesystemNotFound", DestinationNotFoundError, "unchanged"),
        (412, "SourceConditionNotMet", StorePreconditionError, "unchanged"),
        (412, "LeaseIdMissing", StorePermissionError, "unchanged"),
        (409, "SomethingNew", StoreConflictError, "unchanged"),
        (400, "InvalidHeaderValue", ConfigurationError, "unchanged"),
        (400, "InvalidResourceName", InvalidPathError, "unchanged"),
        (405, "UnsupportedHttpVerb", StoreError, "unchanged"),
    ],
)
async def test_what_a_refusal_is(
    store: AdlsStore, emulator: AdlsEmulator, status: int, code: str, expected: type[Exception], outcome: str
) -> None:
    file = await store.put(ROOT / "file", b"1")
    emulator.conduct.faults.append(Fault("error", operation="rename", status=status, code=code))
    with pytest.raises(expected) as caught:
        await store.rename_file(ROOT / "file", ROOT / "new", identity=file.identity)
    assert type(caught.value) is expected
    assert caught.value.outcome == outcome  # type: ignore[attr-defined]
    assert f"{status} {code}" in str(caught.value)


async def test_how_long_the_service_asks_to_wait(store: AdlsStore, emulator: AdlsEmulator) -> None:
    emulator.conduct.faults.append(Fault("error", status=503, code="ServerBusy", retry_after="7"))
    with pytest.raises(StoreThrottledError) as caught:
        await store.status(ROOT)
    assert caught.value.retry_after_s == 7


async def test_a_source_that_changes_under_a_rename_without_identity(store: AdlsStore, emulator: AdlsEmulator) -> None:
    await store.put(ROOT / "file", b"1")
    emulator.conduct.faults.append(Fault("error", operation="rename", status=412, code="SourceConditionNotMet"))
    with pytest.raises(StoreConflictError):
        await store.rename_file(ROOT / "file", ROOT / "new")


async def test_a_file_replaced_while_it_is_deleted_is_looked_at_again(
    store: AdlsStore, emulator: AdlsEmulator, channel: AccountChannel
) -> None:
    await store.put(ROOT / "file", b"1")
    emulator.conduct.faults.append(Fault("latency", operation="delete", seconds=0.2, count=1))
    deleting = asyncio.create_task(store.delete_file(ROOT / "file"))
    await asyncio.sleep(0.1)
    make(emulator, f"{ROOT.path}/file", data=b"2")
    assert await deleting
    assert await channel.files() == {}
    assert requests(emulator, "delete") == ["delete", "delete"]


async def test_names_that_end_in_a_period(store: AdlsStore, emulator: AdlsEmulator) -> None:
    status = await store.put(ROOT / "file", b"1")
    emulator.conduct.log.clear()
    for call in (
        store.put(ROOT / "d./file", b""),
        store.open_writer(ROOT / "file."),
        store.make_directory(ROOT / "d.", parents=True),
        store.rename_file(ROOT / "file", ROOT / "new.", identity=status.identity),
        store.rename_directory(ROOT / "d", ROOT / "e."),
    ):
        with pytest.raises(InvalidPathError):
            await call
    assert requests(emulator) == []


async def test_a_name_that_ends_in_a_period_is_never_another_s(store: AdlsStore, emulator: AdlsEmulator) -> None:
    """Where the service drops the period, deleting `file.` would delete `file`: so nothing is at such a name."""
    await store.put(ROOT / "d/file", b"1")
    emulator.conduct.log.clear()
    assert not await store.delete_file(ROOT / "d/file.")
    assert not await store.delete_file(ROOT / "d./file")
    assert not await store.delete_file_if(ROOT / "d/file.", identity="0x1")
    assert not await store.delete_directory(ROOT / "d.", recursive=True)
    for look in (
        store.status(ROOT / "d."),
        store.read(ROOT / "d/file.", limit=9),
        anext(store.list(ROOT / "d.")),
        store.rename_file(ROOT / "d/file.", ROOT / "new", identity="0x1"),
        store.rename_directory(ROOT / "d.", ROOT / "new"),
    ):
        with pytest.raises(StoreNotFoundError):
            await look
    assert requests(emulator) == []


# --- Writers ------------------------------------------------------------------------------------------------------


async def test_a_refused_write_or_close_can_be_made_again(
    store: AdlsStore, emulator: AdlsEmulator, channel: AccountChannel
) -> None:
    writer = await store.open_writer(ROOT / "file")
    fault = Fault("error", operation="append", status=503, code="ServerBusy", count=1)
    emulator.conduct.faults.append(fault)
    data = b"0123456789" * (1 << 20)
    with pytest.raises(StoreThrottledError):
        await writer.write(data)
    await writer.write(data)
    await writer.write(b"end")
    fault.hits = 0
    with pytest.raises(StoreThrottledError):
        await writer.close()
    assert (await writer.close()).size == len(data) + 3
    assert await channel.files() == {"file": data + b"end"}


async def test_an_append_whose_answer_was_lost_is_the_same_append(
    store: AdlsStore, emulator: AdlsEmulator, channel: AccountChannel
) -> None:
    writer = await store.open_writer(ROOT / "file")
    emulator.conduct.faults.append(Fault("reset-after", operation="append", count=1))
    data = b"0123456789" * (1 << 20)
    with pytest.raises(StoreUnavailableError):
        await writer.write(data)
    await writer.write(data)
    await writer.close()
    assert await channel.files() == {"file": data}


async def test_other_bytes_after_a_lost_append_are_refused(
    store: AdlsStore, emulator: AdlsEmulator, channel: AccountChannel
) -> None:
    writer = await store.open_writer(ROOT / "file")
    emulator.conduct.faults.append(Fault("reset-after", operation="append", count=1))
    with pytest.raises(StoreUnavailableError):
        await writer.write(b"0123456789" * (1 << 20))
    with pytest.raises(TaskError):
        await writer.write(b"abcdefghi" * (1 << 20))
    await writer.abort()
    assert await channel.files() == {}


@pytest.mark.parametrize("trouble", ["error", "reset-after"])
async def test_a_long_write_goes_on_where_it_was_refused(
    store: AdlsStore,
    emulator: AdlsEmulator,
    channel: AccountChannel,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Literal["error", "reset-after"],
) -> None:
    """A write that is longer than one append is there in part by then."""
    monkeypatch.setattr(adls_writer, "_LARGEST_APPEND_BYTES", 4 << 20)
    paced = PacedStore(store, pacer=Pacer("test", concurrency=4), statistics=Statistics(), owned=False)
    writer = await paced.open_writer(ROOT / "file")
    await writer.write(b"head")
    fault = Fault(trouble, operation="append", status=503, code="ServerBusy", skip=1, count=1)
    emulator.conduct.faults.append(fault)
    data = b"0123456789" * (1 << 20)
    await writer.write(data)
    await writer.write(b"tail")
    await writer.close()
    assert await channel.files() == {"file": b"head" + data + b"tail"}


@pytest.mark.parametrize("closing", [False, True])
async def test_a_long_write_that_was_refused_midway_is_no_end(
    store: AdlsStore, emulator: AdlsEmulator, monkeypatch: pytest.MonkeyPatch, closing: bool
) -> None:
    monkeypatch.setattr(adls_writer, "_LARGEST_APPEND_BYTES", 4 << 20)
    writer = await store.open_writer(ROOT / "file")
    emulator.conduct.faults.append(Fault("error", operation="append", status=503, code="ServerBusy", skip=1, count=1))
    with pytest.raises(StoreThrottledError):
        await writer.write(bytes(9 << 20))
    with pytest.raises(TaskError):
        await (writer.close() if closing else writer.write(b"other"))


@pytest.mark.parametrize("closing", [False, True])
async def test_a_cancelled_writer_is_given_up(
    store: AdlsStore, emulator: AdlsEmulator, channel: AccountChannel, closing: bool
) -> None:
    writer = await store.open_writer(ROOT / "file")
    await writer.write(b"1")
    emulator.conduct.faults.append(Fault("latency-after", operation="append", seconds=0.5, count=1))
    call = asyncio.create_task(writer.close() if closing else writer.write(bytes(9 << 20)))  # type: ignore[arg-type]
    await asyncio.sleep(0.1)
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    for again in (writer.write(b"2"), writer.close()):
        with pytest.raises(TaskError):
            await again
    await writer.abort()
    assert await channel.files() == {}


@pytest.mark.parametrize("size", [5, 9 << 20])
async def test_a_close_whose_answer_was_lost_is_looked_at(store: AdlsStore, emulator: AdlsEmulator, size: int) -> None:
    writer = await store.open_writer(ROOT / "file")
    await writer.write(bytes(size))
    emulator.conduct.faults.append(Fault("reset-after", operation="append", count=1))
    emulator.conduct.faults.append(Fault("reset-after", operation="flush", count=1))
    assert await writer.close() == await store.status(ROOT / "file")


@pytest.mark.parametrize("status", [400, 403, 503])
async def test_a_close_that_cannot_be_looked_at(store: AdlsStore, emulator: AdlsEmulator, status: int) -> None:
    writer = await store.open_writer(ROOT / "file")
    await writer.write(b"data")
    emulator.conduct.faults.append(Fault("reset-after", operation="append", count=1))
    emulator.conduct.faults.append(Fault("error", operation="get-status", status=status, code="Any"))
    with pytest.raises(StoreOutcomeUnknownError):
        await writer.close()


async def test_a_close_that_was_not_done(store: AdlsStore, emulator: AdlsEmulator, channel: AccountChannel) -> None:
    writer = await store.open_writer(ROOT / "file")
    await writer.write(b"data")
    emulator.conduct.faults.append(Fault("reset", operation="append"))
    with pytest.raises(StoreOutcomeUnknownError):
        await writer.close()
    with pytest.raises(TaskError):
        await writer.close()
    await writer.abort()
    assert await channel.files() == {}


# --- Accounts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False])
async def test_a_flat_account_is_refused(told: bool) -> None:
    async with serve_store(Settings(hierarchical=False)) as (store, emulator):
        if not told:
            # As with a signature for a directory, which may not ask for the filesystem's properties.
            emulator.conduct.faults.append(
                Fault("error", operation="get-filesystem-properties", status=403, code="AuthorizationFailure")
            )
        with pytest.raises(UnsupportedError, match="no hierarchical namespace") as caught:
            await store.probe(ROOT)
        assert "block-list" in caught.value.next_step


async def test_an_account_that_may_not_be_asked(store: AdlsStore, emulator: AdlsEmulator) -> None:
    for operation in ("get-filesystem-properties", "get-access-control"):
        emulator.conduct.faults.append(Fault("error", operation=operation, status=403, code="AuthorizationFailure"))
    await store.probe(ROOT)
    # The renames that a probe tries were made all the same.
    assert [fault.hits for fault in emulator.conduct.faults] == [1, 1]
    assert "rename" in requests(emulator)
    assert await AccountChannel(emulator).files() == {}


async def test_an_account_that_changes_etags_is_refused() -> None:
    async with serve_store(Settings(etag_through_rename="changed")) as (store, emulator):
        with pytest.raises(UnsupportedError, match="identity"):
            await store.probe(ROOT)
        assert await AccountChannel(emulator).files() == {}


async def test_a_container_that_is_not_there(emulator: AdlsEmulator) -> None:
    place = StorePath("abfss", "other@devstoreaccount1.dfs.core.windows.net", "/d")
    store = open_store(place, {"endpoint": emulator.url, "account_key": emulator.settings.key})
    for call in (store.probe(place), store.put(place, b"1"), store.status(place), store.delete_file(place)):
        with pytest.raises(DestinationNotFoundError, match="no such container: other@devstoreaccount1"):
            await call
    await store.close()
    options: dict[str, object] = {"endpoint": emulator.url, "account_key": emulator.settings.key}
    for operation in (
        committer.list_jobs(place.uri, storage_options=options),
        committer.recover(place.uri, "J", storage_options=options),
        committer.validate(place.uri, storage_options=options),
        committer.open_job(place.uri, storage_options=options),
    ):
        with pytest.raises(DestinationNotFoundError, match="no such container"):
            await operation


async def test_the_blob_endpoint_is_not_tried_again_once_it_refused(store: AdlsStore, emulator: AdlsEmulator) -> None:
    emulator.conduct.faults.append(Fault("error", operation="put-blob", status=403, code="AuthorizationFailure"))
    for number in range(3):
        await store.put(ROOT / f"file-{number}", b"1", exclusive=True)
    assert requests(emulator, "put-blob", "rename") == ["put-blob", "rename", "rename", "rename"]


@pytest.mark.parametrize("exclusive", [True, False])
async def test_a_record_renamed_by_a_request_that_was_sent_twice_is_there(
    store: AdlsStore, emulator: AdlsEmulator, channel: AccountChannel, exclusive: bool
) -> None:
    emulator.conduct.faults += [
        Fault("error", operation="put-blob", status=403, code="AuthorizationFailure"),
        Fault("error-after", operation="rename", status=404, code="SourcePathNotFound"),
    ]
    put = await store.put(ROOT / "file", b"1", exclusive=exclusive)
    assert (await store.status(ROOT / "file")).identity == put.identity
    assert await channel.files() == {"file": b"1"}


async def test_rights_that_are_missing_for_both_ways_to_put(store: AdlsStore, emulator: AdlsEmulator) -> None:
    emulator.conduct.faults.append(Fault("error", status=403, code="AuthorizationPermissionMismatch"))
    with pytest.raises(StorePermissionError):
        await store.put(ROOT / "file", b"1")
    emulator.conduct.faults.clear()
    await store.put(ROOT / "file", b"1")
    assert requests(emulator)[-1] == "put-blob"


# --- Size ---------------------------------------------------------------------------------------------------------


@one_loop
async def test_a_hundred_thousand_entries() -> None:
    async with serve_store() as (store, emulator):
        directory = emulator.namespace.get("data", ROOT.path[1:])
        for number in range(100_000):
            directory.add(f"{number:06}", Node(f'"0x{number:X}"', directory=False))
        found = {status.path.name async for status in store.list(ROOT)}
        assert (len(found), min(found), max(found)) == (100_000, "000000", "099999")
        assert await store.delete_directory(ROOT, recursive=True)
        assert emulator.namespace.find("data", ROOT.path[1:]) is None
        assert (requests(emulator).count("list"), requests(emulator).count("delete")) == (20, 20)


# --- Loops --------------------------------------------------------------------------------------------------------


async def test_a_session_of_the_users_own(emulator: AdlsEmulator, channel: AccountChannel) -> None:
    import aiohttp

    async with aiohttp.ClientSession() as session:
        store = store_on(emulator, http_session=session)
        await store.put(ROOT / "file", b"1")
        await store.close()
        assert not session.closed
        await store.status(ROOT)
    with pytest.raises(ConfigurationError, match="is closed"):
        await store.status(ROOT)
    assert await channel.files() == {"file": b"1"}


async def test_a_copy_has_its_own_connections(store: AdlsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = pickle.loads(pickle.dumps(store))
    assert (copy.endpoint, copy.scheme, repr(copy)) == (store.endpoint, store.scheme, repr(store))
    with pytest.raises(ConfigurationError, match="account_key was given as text"):
        await copy.status(ROOT)
    await copy.close()
