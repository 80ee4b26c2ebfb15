"""The blob endpoint on the same paths: small files in one call, and the URLs that tell the endpoints apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob.aio import BlobServiceClient, ContainerClient
from azure.storage.filedatalake import AccountSasPermissions, ResourceTypes, generate_account_sas
from azure.storage.filedatalake.aio import DataLakeServiceClient, FileSystemClient

from committer_testing.emulators.adls import AdlsEmulator, Settings, serve

from .clients import client, names, read, refused, write


@pytest.fixture
async def blobs(emulator: AdlsEmulator, files: FileSystemClient) -> AsyncIterator[ContainerClient]:
    """The official blob client on `data`."""
    credential = {"account_name": emulator.settings.account, "account_key": emulator.settings.key}
    async with BlobServiceClient(emulator.blob_url, credential=credential, retry_total=0) as service:
        yield service.get_container_client("data")


async def test_a_small_file_is_put_in_one_call_with_its_parents(
    blobs: ContainerClient, files: FileSystemClient, emulator: AdlsEmulator
) -> None:
    emulator.conduct.log.clear()

    made = await blobs.get_blob_client("a/b/record").upload_blob(b"{}", metadata={"who": "me"})

    assert [entry.operation for entry in emulator.conduct.log] == ["put-blob"]
    assert await names(files) == ["a", "a/b", "a/b/record"]
    assert await read(files, "a/b/record") == b"{}"
    status = await files.get_file_client("a/b/record").get_file_properties()
    assert (status.etag, status.metadata) == (made["etag"], {"who": "me"})


async def test_a_blob_is_replaced_only_if_told_so(blobs: ContainerClient) -> None:
    async def put(data: bytes, **how: Any) -> Any:
        return await blobs.get_blob_client("record").upload_blob(data, **how)

    done = await asyncio.gather(*(put(b"1") for _ in range(8)), return_exceptions=True)
    [first] = [one for one in done if not isinstance(one, HttpResponseError)]
    seen = {"overwrite": True, "match_condition": MatchConditions.IfNotModified}
    with refused(409, "BlobAlreadyExists"):
        await put(b"2")
    with refused(412, "ConditionNotMet"):
        await put(b"2", etag='"0x1"', **seen)
    await put(b"3", etag=first["etag"], **seen)
    lease = await blobs.get_blob_client("record").acquire_lease()
    with refused(412, "LeaseIdMissing"):
        await put(b"4", overwrite=True)
    assert await (await blobs.download_blob("record")).readall() == b"3"
    await put(b"4", overwrite=True, lease=lease)
    with refused(501, "NotImplemented"):
        await blobs.get_blob_client("record").set_blob_tags({"k": "v"})


async def test_a_missing_container_is_named_in_each_endpoints_words(emulator: AdlsEmulator) -> None:
    async with client(emulator) as service:
        files = service.get_file_system_client("nothing")
        with refused(404, "FilesystemNotFound"):
            await files.create_file("file")
        with refused(404, "ContainerNotFound"):
            await files.get_file_system_properties()


async def test_a_blob_does_not_take_a_directorys_place(blobs: ContainerClient, files: FileSystemClient) -> None:
    await files.create_directory("a")

    with refused(409, "BlobAlreadyExists"):
        await blobs.upload_blob("a", b"1", overwrite=True)
    with refused(409, "InvalidDestinationPath"):
        await write(files, "file")
        await blobs.upload_blob("file/below", b"1")


async def test_what_a_blob_call_wrote_is_not_appended_to(blobs: ContainerClient, files: FileSystemClient) -> None:
    await blobs.upload_blob("record", b"1")
    file = files.get_file_client("record")

    await file.append_data(b"2", 1)
    with refused(409, "InvalidFlushOperation"):
        await file.flush_data(2)


async def test_blobs_are_described_changed_and_deleted(blobs: ContainerClient, files: FileSystemClient) -> None:
    file = await write(files, "a/file", b"12345")
    blob = blobs.get_blob_client("a/file")

    properties = await blob.get_blob_properties()
    assert (properties.size, properties.etag) == (5, (await file.get_file_properties()).etag)
    await blob.set_blob_metadata({"k": "v"})
    assert (await file.get_file_properties()).metadata == {"k": "v"}
    assert await (await blob.download_blob(offset=1, length=3)).readall() == b"234"
    await blob.delete_blob()

    with refused(404, "BlobNotFound"):
        await blob.delete_blob()
    with pytest.raises(ResourceNotFoundError):
        await blob.get_blob_properties()
    with refused(404, "BlobNotFound"):
        await blob.set_blob_metadata({})


# --- URLs ---------------------------------------------------------------------------------------------------------


async def test_the_official_client_finds_the_blob_endpoint_from_the_dfs_one(emulator: AdlsEmulator) -> None:
    credential = {"account_name": emulator.settings.account, "account_key": emulator.settings.key}
    async with DataLakeServiceClient(emulator.dfs_url, credential=credential, retry_total=0) as service:
        files = await service.create_file_system("data")
        await write(files, "file")
        await files.get_file_client("file").get_file_properties()

    assert [(entry.endpoint, entry.operation) for entry in emulator.conduct.log] == [
        ("blob", "create-filesystem"),
        ("dfs", "create-file"),
        ("dfs", "append"),
        ("dfs", "flush"),
        ("blob", "get-properties"),
    ]


@pytest.mark.parametrize(
    ("endpoint", "host", "status", "kind"),
    [
        ("", None, 404, "application/json"),
        (".dfs.emulator", None, 404, "application/json"),
        (".blob.emulator", None, 404, "application/xml"),
        (None, "devstoreaccount1.dfs.core.windows.net", 404, "application/json"),
        (None, "devstoreaccount1.blob.core.windows.net", 404, "application/xml"),
        ("x", None, 404, "application/json"),
    ],
)
async def test_each_endpoint_has_urls_and_a_language_of_its_own(
    endpoint: str | None, host: str | None, status: int, kind: str
) -> None:
    async with serve(Settings(bearer_tokens=frozenset({"a.b.c"}))) as emulator, aiohttp.ClientSession() as session:
        base = emulator.url.rpartition("/")[0] if endpoint is None else emulator.url + endpoint
        headers = {"Authorization": "Bearer a.b.c", "x-ms-version": "2024-11-04", "x-ms-client-request-id": "me"}
        if host is not None:
            headers["Host"] = host
        async with session.get(f"{base}/data/file", headers=headers) as answer:
            assert (answer.status, answer.content_type) == (status, kind)
            assert answer.headers["x-ms-version"] == "2024-11-04"
            assert answer.headers["x-ms-client-request-id"] == "me"
            assert answer.headers["x-ms-request-id"] in await answer.text() or endpoint == "x"
            assert "Date" in answer.headers


@pytest.mark.parametrize("hierarchical", [True, False])
async def test_the_kind_of_account_can_be_told(hierarchical: bool) -> None:
    async with serve(Settings(hierarchical=hierarchical)) as emulator, client(emulator) as service:
        credential = {"account_name": emulator.settings.account, "account_key": emulator.settings.key}
        async with BlobServiceClient(emulator.blob_url, credential=credential) as blobs:
            assert (await blobs.get_account_information())["is_hns_enabled"] is hierarchical
        files = await service.create_file_system("data")
        root = files.get_directory_client("/")
        if hierarchical:
            assert (await root.get_access_control())["permissions"] == "rwxr-x---"
        else:
            for call in (root.get_access_control(), root.set_access_control(permissions="0700")):
                with pytest.raises(HttpResponseError) as caught:
                    await call
                assert caught.value.status_code == 400
        await write(files, "a/file")
        assert await names(files) == ["a", "a/file"]


@pytest.mark.parametrize("days", [0, 30])
async def test_the_properties_of_the_service(days: int) -> None:
    async with serve(Settings(soft_delete_days=days)) as emulator, client(emulator) as service:
        found = await service.get_service_properties()
        policy = found["delete_retention_policy"]
        assert (policy.enabled, policy.days) == (bool(days), days or None)
        assert found["static_website"].enabled is False
        assert (found["analytics_logging"].read, found["hour_metrics"].enabled, found["cors"]) == (False, False, [])


@pytest.mark.parametrize(
    ("method", "place", "status"),
    [("GET", "", 200), ("HEAD", "", 501), ("PUT", "", 501), ("GET", "data", 501), ("GET", "data/file", 501)],
)
async def test_the_service_has_properties_of_its_own_only(method: str, place: str, status: int) -> None:
    """A container and a blob have none of that kind; setting them is not emulated."""
    async with serve(Settings(bearer_tokens=frozenset({"a.b.c"}))) as emulator, aiohttp.ClientSession() as session:
        headers = {"Authorization": "Bearer a.b.c", "x-ms-version": "2017-04-17"}
        url = f"{emulator.blob_url}/{place}?restype=service&comp=properties"
        async with session.request(method, url, headers=headers) as answer:
            assert answer.status == status
            text = await answer.text()
    # The version of the request says how much is told.
    assert "DeleteRetentionPolicy" not in text


@pytest.mark.parametrize(
    ("resource_types", "permission", "code"),
    [
        ({"service": True}, {"read": True}, None),
        ({"service": True}, {"write": True, "list": True}, "AuthorizationPermissionMismatch"),
        ({"file_system": True, "object": True}, {"read": True}, "AuthorizationResourceTypeMismatch"),
    ],
)
async def test_which_signature_may_ask_for_them(
    emulator: AdlsEmulator, resource_types: dict[str, bool], permission: dict[str, bool], code: str | None
) -> None:
    sas = generate_account_sas(
        emulator.settings.account,
        emulator.settings.key,
        resource_types=ResourceTypes(**resource_types),
        permission=AccountSasPermissions(**permission),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    async with client(emulator, sas) as service:
        if code is None:
            assert "delete_retention_policy" in await service.get_service_properties()
        else:
            with refused(403, code):
                await service.get_service_properties()
