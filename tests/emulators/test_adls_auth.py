"""Authentication: SharedKey, shared access signatures and bearer tokens, each operation with a good and a bad one."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest
from azure.core.credentials import AccessToken
from azure.storage.filedatalake import (
    AccountSasPermissions,
    DirectorySasPermissions,
    FileSystemSasPermissions,
    ResourceTypes,
    generate_account_sas,
    generate_directory_sas,
    generate_file_sas,
    generate_file_system_sas,
)
from azure.storage.filedatalake.aio import DataLakeServiceClient, FileSystemClient

from committer_testing.emulators.adls import AdlsEmulator, Settings, auth, serve

from .clients import client, names, read, refused, write
from .tls import certificate_in

WRONG_KEY = base64.b64encode(b"no such key").decode()
TOKEN = "eyJhbGciOiJub25lIn0.eyJhdWQiOiJodHRwczovL3N0b3JhZ2UuYXp1cmUuY29tIn0.c2lnbmVk"
WRONG_TOKEN = TOKEN[:-1] + "A"
LATER = datetime.now(UTC) + timedelta(hours=1)


async def rename(files: FileSystemClient) -> None:
    await files.get_file_client("dir/file").rename_file("data/dir/moved")


async def append(files: FileSystemClient) -> None:
    await files.get_file_client("dir/file").append_data(b"!", 4)


async def flush(files: FileSystemClient) -> None:
    await files.get_file_client("dir/file").flush_data(4)


async def delete_directory(files: FileSystemClient) -> None:
    await files.get_directory_client("dir").delete_directory()


OPERATIONS: dict[str, Callable[[FileSystemClient], Awaitable[Any]]] = {
    "list": lambda files: names(files, "dir"),
    "filesystem properties": lambda files: files.get_file_system_properties(),
    "create file": lambda files: files.create_file("dir/new"),
    "create directory": lambda files: files.create_directory("dir/new"),
    "rename": rename,
    "append": append,
    "flush": flush,
    "read": lambda files: read(files, "dir/file"),
    "properties": lambda files: files.get_file_client("dir/file").get_file_properties(),
    "access control": lambda files: files.get_file_client("dir/file").get_access_control(),
    "set access control": lambda files: files.get_file_client("dir/file").set_access_control(permissions="0600"),
    "set metadata": lambda files: files.get_file_client("dir/file").set_metadata({"k": "v"}),
    "lease": lambda files: files.get_file_client("dir/file").acquire_lease(),
    "delete file": lambda files: files.delete_file("dir/file"),
    "delete directory": delete_directory,
}


def account_sas(emulator: AdlsEmulator, **changes: Any) -> str:
    options: dict[str, Any] = {
        "account_name": emulator.settings.account,
        "account_key": emulator.settings.key,
        "resource_types": ResourceTypes(service=True, file_system=True, object=True),
        "permission": AccountSasPermissions(read=True, write=True, delete=True, list=True, create=True),
        "expiry": LATER,
    }
    return generate_account_sas(**{**options, **changes})


def filesystem_sas(emulator: AdlsEmulator, **changes: Any) -> str:
    options: dict[str, Any] = {
        "account_name": emulator.settings.account,
        "file_system_name": "data",
        "credential": emulator.settings.key,
        "permission": FileSystemSasPermissions.from_string("racwdlmeop"),
        "expiry": LATER,
    }
    return generate_file_system_sas(**{**options, **changes})


class Token:
    """A credential that gives one token."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(self.token, int(LATER.timestamp()))

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None: ...


@pytest.fixture
async def emulator() -> AsyncIterator[AdlsEmulator]:
    async with serve(Settings(bearer_tokens=frozenset({TOKEN}))) as emulator:
        yield emulator


@pytest.fixture
async def files(emulator: AdlsEmulator) -> AsyncIterator[FileSystemClient]:
    async with client(emulator) as service:
        files = await service.create_file_system("data")
        await write(files, "dir/file")
        yield files


# --- SharedKey ----------------------------------------------------------------------------------------------------


async def test_the_key_of_another_account_does_not_sign(files: FileSystemClient, emulator: AdlsEmulator) -> None:
    credential = {"account_name": "other", "account_key": emulator.settings.key}
    async with client(emulator, credential) as stranger:
        with refused(403, "AuthenticationFailed"):
            await names(stranger.get_file_system_client("data"))


async def test_a_signature_holds_for_its_request_only(files: FileSystemClient, emulator: AdlsEmulator) -> None:
    sent: list[Any] = []

    def keep(response: Any) -> None:
        sent.append(response.http_request)

    await files.get_file_client("dir/file").get_file_properties(raw_response_hook=keep)
    headers = dict(sent[0].headers)
    async with aiohttp.ClientSession() as session:
        async with session.head(sent[0].url, headers=headers) as answer:
            assert answer.status == 200
        async with session.head(sent[0].url.replace("file", "fil"), headers=headers) as answer:
            assert answer.status == 403
        async with session.get(sent[0].url, headers=headers) as answer:
            assert answer.status == 403
        async with session.head(sent[0].url, headers={**headers, "x-ms-more": "1"}) as answer:
            assert answer.status == 403
        async with session.head(sent[0].url + "?a=b", headers=headers) as answer:
            assert answer.status == 403


async def test_an_old_signature_is_refused(files: FileSystemClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await names(files)
    clock = time.time
    monkeypatch.setattr(auth.time, "time", lambda: clock() + 901)

    with refused(403, "AuthenticationFailed"):
        await names(files)


# --- Shared access signatures -------------------------------------------------------------------------------------


SIGNED: dict[str, Callable[[AdlsEmulator, str], str]] = {
    "key": lambda emulator, key: key,
    "account sas": lambda emulator, key: account_sas(emulator, account_key=key),
    "filesystem sas": lambda emulator, key: filesystem_sas(emulator, credential=key),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("signed", SIGNED)
async def test_only_what_the_right_key_signed_is_accepted(
    files: FileSystemClient, emulator: AdlsEmulator, signed: str, operation: str
) -> None:
    async with client(emulator, SIGNED[signed](emulator, WRONG_KEY)) as stranger:
        with refused(403, "AuthenticationFailed"):
            await OPERATIONS[operation](stranger.get_file_system_client("data"))
    async with client(emulator, SIGNED[signed](emulator, emulator.settings.key)) as guest:
        mine = guest.get_file_system_client("data")
        if (signed, operation) == ("filesystem sas", "filesystem properties"):
            # No service SAS holds for calls on the filesystem itself, listing it aside ("Create a service SAS").
            with refused(403, "AuthorizationFailure"):
                await OPERATIONS[operation](mine)
        else:
            await OPERATIONS[operation](mine)


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "filesystem properties"])
async def test_a_sas_that_grants_nothing_needed_is_refused(
    files: FileSystemClient, emulator: AdlsEmulator, operation: str
) -> None:
    # What lists, reads; what reads and lists, changes nothing.
    letters = "wd" if operation in {"list", "read", "properties", "access control"} else "rl"
    async with client(emulator, filesystem_sas(emulator, permission=letters)) as guest:
        with refused(403, "AuthorizationPermissionMismatch"):
            await OPERATIONS[operation](guest.get_file_system_client("data"))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"expiry": datetime.now(UTC) - timedelta(minutes=1)}, "AuthenticationFailed"),
        ({"start": LATER - timedelta(minutes=1)}, "AuthenticationFailed"),
        ({"protocol": "https"}, "AuthorizationProtocolMismatch"),
        ({"ip": "10.0.0.1-10.0.0.9"}, "AuthorizationSourceIPMismatch"),
        ({"resource_types": ResourceTypes(service=True)}, "AuthorizationResourceTypeMismatch"),
        ({"ip": "127.0.0.0-127.0.0.9", "protocol": "https,http"}, None),
    ],
)
async def test_a_sas_holds_within_its_bounds(
    files: FileSystemClient, emulator: AdlsEmulator, changes: dict[str, Any], code: str | None
) -> None:
    async with client(emulator, account_sas(emulator, **changes)) as guest:
        with refused(403, code) if code else nullcontext():
            assert await names(guest.get_file_system_client("data")) == ["dir", "dir/file"]


async def test_a_changed_permission_breaks_the_signature(files: FileSystemClient, emulator: AdlsEmulator) -> None:
    sas = filesystem_sas(emulator, permission="rl").replace("sp=rl", "sp=rwl")
    async with client(emulator, sas) as guest:
        with refused(403, "AuthenticationFailed"):
            await guest.get_file_system_client("data").create_file("dir/new")


async def test_a_sas_for_a_directory_holds_below_it(files: FileSystemClient, emulator: AdlsEmulator) -> None:
    await write(files, "dir/deep/file", b"deep")
    await write(files, "other", b"other")
    sas = generate_directory_sas(
        emulator.settings.account,
        "data",
        "dir",
        emulator.settings.key,
        permission=DirectorySasPermissions.from_string("racwdlmeop"),
        expiry=LATER,
    )
    async with client(emulator, sas) as guest:
        mine = guest.get_file_system_client("data")
        assert await read(mine, "dir/deep/file") == b"deep"
        await mine.get_file_client("dir/deep/file").rename_file("data/dir/moved")
        with refused(403, "AuthenticationFailed"):
            await read(mine, "other")
    assert await names(files, "dir") == ["dir/deep", "dir/file", "dir/moved"]


async def test_a_sas_for_a_file_holds_for_that_file(files: FileSystemClient, emulator: AdlsEmulator) -> None:
    await write(files, "dir/other")
    sas = generate_file_sas(
        emulator.settings.account, "data", "dir", "file", emulator.settings.key, permission="r", expiry=LATER
    )
    async with client(emulator, sas) as guest:
        assert await read(guest.get_file_system_client("data"), "dir/file") == b"data"
        with refused(403, "AuthenticationFailed"):
            await read(guest.get_file_system_client("data"), "dir/other")


async def test_the_source_of_a_rename_needs_its_own_sas(files: FileSystemClient, emulator: AdlsEmulator) -> None:
    async def renamed(emulator: AdlsEmulator, source: str) -> int:
        url = f"{emulator.url}/data/moved?{filesystem_sas(emulator)}"
        headers = {"x-ms-rename-source": source, "x-ms-version": "2024-11-04"}
        async with aiohttp.ClientSession() as session, session.put(url, headers=headers) as answer:
            return answer.status

    assert await renamed(emulator, "/data/dir/file") == 403
    assert await renamed(emulator, f"/data/dir/file?{filesystem_sas(emulator, credential=WRONG_KEY)}") == 403
    assert await renamed(emulator, f"/data/dir/file?{filesystem_sas(emulator, permission='r')}") == 403
    assert await names(files) == ["dir", "dir/file"]
    assert await renamed(emulator, f"/data/dir/file?{filesystem_sas(emulator)}") == 201
    assert await names(files) == ["dir", "moved"]

    async with serve(Settings(rename_source_needs_sas=False)) as lenient, client(lenient) as service:
        await write(await service.create_file_system("data"), "dir/file")
        assert await renamed(lenient, "/data/dir/file") == 201


# --- Bearer tokens ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file: the official client sends tokens over TLS only."""
    return certificate_in(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def over_tls(certificate: Path, token: str) -> AsyncIterator[tuple[DataLakeServiceClient, AdlsEmulator]]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    settings = Settings(bearer_tokens=frozenset({TOKEN}))
    async with serve(settings, ssl_context=context) as emulator:
        trust = {"connection_verify": str(certificate)}
        async with client(emulator, **trust) as service:
            await write(await service.create_file_system("data"), "dir/file")
        emulator.conduct.log.clear()
        async with client(emulator, Token(token), **trust) as service:
            yield service, emulator


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_only_a_listed_token_is_accepted(certificate: Path, operation: str) -> None:
    async with over_tls(certificate, TOKEN) as (service, _emulator):
        await OPERATIONS[operation](service.get_file_system_client("data"))
    async with over_tls(certificate, WRONG_TOKEN) as (service, _emulator):
        with refused(401, "InvalidAuthenticationInfo"):
            await OPERATIONS[operation](service.get_file_system_client("data"))


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "NoAuthenticationInformation"),
        ({"Authorization": "Bearer no-jwt"}, 401, "InvalidAuthenticationInfo"),
        ({"Authorization": "Basic eDp5"}, 400, "InvalidAuthenticationInfo"),
        ({"Authorization": "SharedKey nonsense"}, 400, "InvalidAuthenticationInfo"),
        ({"x-ms-version": "soon"}, 400, "InvalidHeaderValue"),
        ({"x-ms-version": "2015-02-21"}, 400, "UnsupportedRestVersion"),
    ],
)
async def test_who_says_nothing_sensible_is_told_so(
    emulator: AdlsEmulator, headers: dict[str, str], status: int, code: str
) -> None:
    url = f"{emulator.url}/data?resource=filesystem&recursive=true"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        body = await answer.json()
        assert (answer.status, answer.headers["x-ms-error-code"], body["error"]["code"]) == (status, code, code)
        if code == "NoAuthenticationInformation":
            assert "resource_id=https://storage.azure.com" in answer.headers["WWW-Authenticate"]
