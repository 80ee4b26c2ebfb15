"""What becomes of calls whose answer is lost, that are refused for their rate, and of what only this service says."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import committer
from committer.errors import (
    ConfigurationError,
    DestinationNotFoundError,
    InvalidPathError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StorePreconditionError,
    StoreThrottledError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.stores.azure_blob import AzureBlobStore
from committer.stores.base import Store
from committer.stores.helpers import finish_block_list
from committer.stores.registry import open_store
from tests.azure_blob.azurite import ACCOUNT, CONTAINER, KEY, KEY_IS_IN, Azurite
from tests.azure_blob.container import ContainerChannel, write_task
from tests.s3.proxy import Proxy, Trouble

HOST = "lakeaccount.blob.core.windows.net"


@pytest.fixture
def options(proxy: Proxy) -> dict[str, object]:
    return {"account_name": ACCOUNT, "endpoint": f"{proxy.url}/{ACCOUNT}", "account_key": f"env:{KEY_IS_IN}"}


@pytest.fixture
async def behind(root: StorePath, options: dict[str, object]) -> Any:
    """The store behind the proxy."""
    store = AzureBlobStore.open_for(root, options)
    yield store
    await store.close()


# -- lost answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lose answer", "lose request", "cut answer", "fail after"])
@pytest.mark.parametrize("replaces", [False, True])
async def test_a_lost_answer_to_a_list_is_looked_up(
    kind: Any, replaces: bool, root: StorePath, behind: AzureBlobStore, proxy: Proxy, channel: ContainerChannel
) -> None:
    path = root / "file"
    old = await behind.put(path, b"old") if replaces else None
    await behind.put_block(path, "b1", b"new")
    proxy.troubles.append(Trouble(kind, method="PUT", query="comp=blocklist"))
    identity = await finish_block_list(
        behind, path, ["b1"], stamp="mine", size=3, exclusive=old is None, identity=old.identity if old else None
    )
    assert await channel.files() == {"file": b"new"}
    assert identity == (await behind.status(path)).identity


async def test_a_list_that_was_put_before_is_found_by_its_stamp(
    root: StorePath, behind: AzureBlobStore, channel: ContainerChannel
) -> None:
    path = root / "file"
    await behind.put_block(path, "b1", b"new")
    first = await finish_block_list(behind, path, ["b1"], stamp="mine", size=3, exclusive=True)
    assert await finish_block_list(behind, path, ["b1"], stamp="mine", size=3, exclusive=True) == first
    with pytest.raises(StoreExistsError):
        await finish_block_list(behind, path, ["b1"], stamp="another's", size=3, exclusive=True)
    assert await channel.files() == {"file": b"new"}


async def test_answers_that_keep_being_lost_are_unknown(
    root: StorePath, behind: AzureBlobStore, proxy: Proxy, channel: ContainerChannel
) -> None:
    path = root / "file"
    await behind.put_block(path, "b1", b"new")
    proxy.troubles.append(Trouble("lose request", method="PUT", query="comp=blocklist", times=100))
    with pytest.raises(StoreOutcomeUnknownError):
        await finish_block_list(behind, path, ["b1"], stamp="mine", size=3, exclusive=True)
    proxy.troubles.clear()
    assert await channel.files() == {}
    assert [block.block_id for block in await behind.list_uncommitted_blocks(path)] == ["b1"]


@pytest.mark.parametrize("kind", ["lose answer", "lose request", "fail after"])
@pytest.mark.parametrize("number", [0, 1, 4])
async def test_a_job_whose_answers_are_lost(
    kind: Any, number: int, root: StorePath, options: dict[str, object], proxy: Proxy, channel: ContainerChannel
) -> None:
    """Blocks are sent again, lists are looked for: every file once, and no other."""
    files = {f"part-{index}": b"%d" % index * 10 for index in range(6)} | {"empty": b""}
    async with committer.open_job(root, storage_options=options) as job:
        async with job.task_attempt(0) as task:
            proxy.troubles += [Trouble(kind, method="PUT", query="comp=block&", times=2)] if number else []
            for name, data in files.items():
                async with task.open(name) as file:
                    await file.write(data)
        proxy.troubles.append(Trouble(kind, method="PUT", query="comp=blocklist", times=number + 1))
        report = await job.commit(tasks=1)
    assert report.files_committed == len(files)
    found = await channel.files()
    del found["_SUCCESS"]
    assert found == files


# -- throttling ------------------------------------------------------------------------------------------------------


async def test_a_store_that_is_busy_says_so(root: StorePath, behind: AzureBlobStore, proxy: Proxy) -> None:
    busy = {"x-ms-error-code": "ServerBusy", "Retry-After": "7"}
    proxy.troubles.append(Trouble("answer", method="PUT", status=503, headers=busy))
    with pytest.raises(StoreThrottledError) as caught:
        await behind.put_block(root / "file", "b1", b"x")
    assert (caught.value.retry_after_s, caught.value.outcome) == (7, "unchanged")


async def test_a_job_that_is_throttled_commits(
    root: StorePath, options: dict[str, object], proxy: Proxy, channel: ContainerChannel
) -> None:
    async with committer.open_job(root, storage_options=options) as job:
        await write_task(job, {f"part-{number}": b"x" for number in range(8)})
        proxy.seen.clear()
        busy = {"x-ms-error-code": "ServerBusy", "Retry-After": "0"}
        proxy.troubles.append(Trouble("answer", query="comp=blocklist", status=503, headers=busy, times=5))
        report = await job.commit(tasks=1)
    assert report.files_committed == 8
    assert json.loads((await channel.files())["_SUCCESS"])["success"]
    assert proxy.count("PUT", "comp=blocklist") == 8 + 5


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("AuthorizationPermissionMismatch", 403, StorePermissionError),
        ("AuthenticationFailed", 403, StorePermissionError),
        ("BlobImmutableDueToPolicy", 409, StorePermissionError),
        ("LeaseIdMissing", 412, StorePermissionError),
        ("ContainerNotFound", 404, DestinationNotFoundError),
        ("RequestBodyTooLarge", 413, ConfigurationError),
        ("BlobAlreadyExists", 409, StoreExistsError),
    ],
)
async def test_refusals(
    code: str, status: int, kind: type[Exception], root: StorePath, behind: AzureBlobStore, proxy: Proxy
) -> None:
    proxy.troubles.append(Trouble("answer", method="PUT", status=status, headers={"x-ms-error-code": code}))
    with pytest.raises(kind) as caught:
        await behind.put_block_list(root / "file", [], stamp="mine", exclusive=True)
    assert getattr(caught.value, "outcome", None) == "unchanged"


async def test_a_condition_on_what_is_not_there(root: StorePath, behind: AzureBlobStore, proxy: Proxy) -> None:
    """Azurite answers 412; the documents leave it open."""
    for answers in ([], [Trouble("answer", method="PUT", status=404, headers={"x-ms-error-code": "BlobNotFound"})]):
        proxy.troubles += answers
        with pytest.raises(StorePreconditionError):
            await behind.put_block_list(root / "file", [], stamp="mine", identity="0x1")


async def test_another_key_is_refused(root: StorePath, server: Azurite) -> None:
    store = AzureBlobStore.open_for(root, server.options(account_key="bm90IHRoZSBrZXk="))
    with pytest.raises(StorePermissionError) as caught:
        await store.status(root / "file")
    assert "bm90" not in str(caught.value)
    await store.close()


async def test_an_account_with_directories_is_sent_to_abfss(
    root: StorePath, behind: AzureBlobStore, proxy: Proxy
) -> None:
    hierarchical = {"x-ms-is-hns-enabled": "true", "x-ms-account-kind": "StorageV2", "x-ms-sku-name": "Standard_LRS"}
    told = Trouble("answer", method="GET", query="restype=account", status=200, headers=hierarchical, times=2)
    proxy.troubles.append(told)
    with pytest.raises(UnsupportedError) as caught:
        await behind.probe(root)
    assert "abfss://" in caught.value.next_step
    [finding] = await behind.findings(root)
    assert finding.verdict == "failed"


# -- markers of other tools --------------------------------------------------------------------------------------------


async def test_markers_of_directories_are_no_files(root: StorePath, store: Store, channel: ContainerChannel) -> None:
    """As Hadoop's wasb: leaves them: an empty blob of the directory's name."""
    container, prefix = channel._container, channel._prefix
    container.upload_blob(f"{prefix}d", b"", metadata={"hdi_isfolder": "true"})
    container.upload_blob(f"{prefix}d/e", b"", metadata={"hdi_isfolder": "true"})
    assert (await store.status(root / "d")).is_directory
    assert [(one.path.name, one.is_directory) async for one in store.list(root)] == [("d", True)]
    await store.put(root / "d/e/file", b"x")
    assert [one.path.name async for one in store.list(root / "d")] == ["e"]
    assert await store.delete_directory(root / "d", recursive=True)
    assert await channel.files() == {}


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "given", "endpoint"),
    [
        ("az://data/t", {"account_name": "acct"}, "https://acct.blob.core.windows.net"),
        ("az://data/t", {"azure_storage_account_name": "acct"}, "https://acct.blob.core.windows.net"),
        ("wasbs://data@acct.blob.core.windows.net/t", {}, "https://acct.blob.core.windows.net"),
        ("wasb://data@acct.blob.core.chinacloudapi.cn/t", {}, "https://acct.blob.core.chinacloudapi.cn"),
        ("az://data/t", {"account_name": "acct", "endpoint": "http://127.0.0.1:1/acct"}, "http://127.0.0.1:1/acct"),
        (
            "az://data/t",
            {"connection_string": "AccountName=acct;AccountKey=a2V5;EndpointSuffix=core.windows.net"},
            "https://acct.blob.core.windows.net",
        ),
    ],
)
def test_which_account(uri: str, given: dict[str, object], endpoint: str) -> None:
    key = {} if "connection_string" in given else {"account_key": "a2V5"}
    store = open_store(StorePath.of(uri), {**given, **key})
    assert store.endpoint == endpoint
    again = pickle.loads(
        pickle.dumps(
            open_store(
                StorePath.of(uri),
                {**given, "account_key": "env:K"} if key else {"account_name": "acct", "account_key": "env:K"},
            )
        )
    )
    assert (again.scheme, again.endpoint) == (store.scheme, endpoint)


def test_a_container_alone_needs_its_account() -> None:
    with pytest.raises(ConfigurationError, match="no account") as caught:
        open_store(StorePath.of("az://data/t"), {"account_key": "a2V5"})
    assert "account_name" in caught.value.next_step
    with pytest.raises(InvalidPathError):
        open_store(StorePath.of("wasbs://data/t"), {"account_key": "a2V5"})
    with pytest.raises(ConfigurationError):
        open_store(StorePath.of(f"wasbs://data@{HOST}/t"), {"account_key": "a2V5", "account_name": "another"})


def test_the_clients_of_the_vendor_are_taken(server: Azurite) -> None:
    for client in (server.client, server.client.get_container_client(CONTAINER)):
        store = open_store(StorePath.of(f"az://{CONTAINER}/t"), {"client": client})
        assert store.endpoint == server.endpoint
        assert KEY not in repr(store)
