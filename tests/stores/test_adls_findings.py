"""Facts that `doctor` learns from an account, for each way of authentication."""

from __future__ import annotations

import base64
import logging
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.storage import filedatalake
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from azure.storage.filedatalake import aio as filedatalake_aio

from committer.paths import StorePath
from committer.stores.adls import AdlsStore
from committer.stores.examination import EXAMINATION, Finding
from committer.stores.local import LocalStore
from committer.stores.registry import open_store
from committer.testing.faults import FaultyStore
from committer_testing.emulators.adls import AdlsEmulator, Fault, Settings, serve
from tests.emulators.tls import certificate_in
from tests.stores.adls_account import ROOT, account_fixture, make, put_files, requests, signature, store_on
from tests.stores.test_adls_access import AsyncCredential, Credential, over_tls

KEY = base64.b64encode(b"the canary of an account that is asked").decode()
TOKEN = "eyJhbGciOiJub25lIn0.eyJhdWQiOiJjYW5hcnkifQ.c2lnbmVkY2FuYXJ5"
NAMES = ["kind of account", "access control", "blob soft delete"]


emulator = account_fixture(Settings(key=KEY))


async def findings(store: AdlsStore, directory: StorePath = ROOT) -> dict[str, Finding]:
    try:
        found = await store.findings(directory)
    finally:
        await store.close()
    return {one.name: one for one in found}


def verdicts(found: dict[str, Finding]) -> list[str]:
    assert list(found) == NAMES
    return [one.verdict for one in found.values()]


WAYS: dict[str, Callable[[AdlsEmulator, str], dict[str, object]]] = {
    "account_key": lambda emulator, sas: {"account_key": KEY, "endpoint": emulator.dfs_url},
    "sas_token": lambda emulator, sas: {"sas_token": f"?{sas}", "endpoint": emulator.dfs_url},
    "connection_string with a key": lambda emulator, sas: {
        "connection_string": f"AccountName=devstoreaccount1;AccountKey={KEY};DfsEndpoint={emulator.dfs_url}"
    },
    "connection_string with a signature": lambda emulator, sas: {
        "connection_string": f"SharedAccessSignature={sas};DfsEndpoint={emulator.dfs_url}"
    },
    "AzureNamedKeyCredential": lambda emulator, sas: {
        "credential": AzureNamedKeyCredential("devstoreaccount1", KEY),
        "endpoint": emulator.dfs_url,
    },
    "AzureSasCredential": lambda emulator, sas: {"credential": AzureSasCredential(sas), "endpoint": emulator.dfs_url},
    "client with a key": lambda emulator, sas: {
        "client": filedatalake.DataLakeServiceClient(
            emulator.dfs_url, credential={"account_name": "devstoreaccount1", "account_key": KEY}
        )
    },
    "client of a container with a signature": lambda emulator, sas: {
        "client": filedatalake.FileSystemClient(emulator.url, "data", credential=sas)
    },
    "client that is not blocking": lambda emulator, sas: {
        "client": filedatalake_aio.DataLakeServiceClient(emulator.url, credential=KEY)
    },
}


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_be_let_in(emulator: AdlsEmulator, way: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sas = signature(emulator)
    options = WAYS[way](emulator, sas)
    client = options.get("client")
    found = await findings(AdlsStore.open_for(ROOT, options))
    if isinstance(client, filedatalake_aio.DataLakeServiceClient):
        await client.close()
    assert verdicts(found) == ["ok", "ok", "ok"]
    assert found["kind of account"].found == "StorageV2, Standard_LRS; hierarchical namespace on"
    assert found["access control"].found == "the destination: owner $superuser, group $superuser, rwxr-x---"
    assert found["blob soft delete"].found == "off"
    shown = f"{found!r} {caplog.text}"
    for secret in (KEY, sas[sas.index("sig=") + 4 :].partition("&")[0]):
        assert secret not in shown


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate_in(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("kind", [Credential, AsyncCredential])
async def test_a_token_is_got_once_for_the_store_and_its_findings(
    certificate: Path, kind: type[Credential], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    credential = kind()
    async with over_tls(certificate, credential) as (store, emulator):
        await store.status(ROOT)
        # Storage Blob Data Contributor holds no right to read the properties of the service.
        refusal = "AuthorizationPermissionMismatch"
        emulator.conduct.faults.append(Fault("error", "get-service-properties", status=403, code=refusal))
        found = await findings(store)
    assert verdicts(found) == ["ok", "ok", "skipped"]
    assert credential.asked == 1
    assert "403 AuthorizationPermissionMismatch; a right that no commit" in found["blob soft delete"].found
    assert credential.token not in f"{found!r} {caplog.text}"


async def test_a_signature_for_the_container_alone(emulator: AdlsEmulator) -> None:
    sas = generate_container_sas(
        "devstoreaccount1",
        "data",
        account_key=KEY,
        permission=ContainerSasPermissions(read=True, write=True, delete=True, list=True, create=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    found = await findings(store_on(emulator, account_key=None, sas_token=sas))
    assert verdicts(found) == ["ok", "ok", "skipped"]
    assert found["blob soft delete"].next_step == ""


async def test_a_signature_that_is_not_for_the_service(emulator: AdlsEmulator) -> None:
    sas = filedatalake.generate_account_sas(
        "devstoreaccount1",
        KEY,
        resource_types=filedatalake.ResourceTypes(file_system=True, object=True),
        permission=filedatalake.AccountSasPermissions(read=True, list=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    found = await findings(store_on(emulator, account_key=None, sas_token=sas))
    assert verdicts(found) == ["ok", "ok", "skipped"]
    assert "403 AuthorizationResourceTypeMismatch" in found["blob soft delete"].found


async def test_soft_delete_costs() -> None:
    async with serve(Settings(key=KEY, soft_delete_days=7)) as emulator:
        put_files(emulator)
        found = (await findings(store_on(emulator)))["blob soft delete"]
    assert (found.verdict, "for 7 days" in found.found, bool(found.next_step)) == ("warning", True, True)


async def test_an_account_without_hierarchical_namespace() -> None:
    async with serve(Settings(key=KEY, hierarchical=False)) as emulator:
        put_files(emulator)
        found = await findings(store_on(emulator))
    assert verdicts(found) == ["failed", "skipped", "ok"]
    assert "write az://CONTAINER/PATH" in found["kind of account"].next_step


# --- Access control -----------------------------------------------------------------------------------------------


def set_list(emulator: AdlsEmulator, path: str, entries: str) -> None:
    node = emulator.namespace.get("data", path.strip("/"))
    node.acl = f"user::rwx,group::r-x,other::---,{entries}"


async def access_control(emulator: AdlsEmulator, directory: StorePath) -> Finding:
    return (await findings(store_on(emulator), directory))["access control"]


@pytest.mark.parametrize("name", ["new/deeper/still", "a b/ü", "p%41=x"])
async def test_of_a_missing_destination_the_nearest_directory_is_told(emulator: AdlsEmulator, name: str) -> None:
    emulator.namespace.get("data", ROOT.path[1:]).owner = "alice"
    found = await access_control(emulator, ROOT / name)
    assert found.found.startswith("/test/root, the nearest directory there is: owner alice,")


async def test_the_directory_that_is_told_is_the_one_of_that_name(emulator: AdlsEmulator) -> None:
    make(emulator, f"{ROOT.path}/p%41=x ü", directory=True)
    emulator.namespace.get("data", f"{ROOT.path[1:]}/p%41=x ü").owner = "bob"
    found = await access_control(emulator, ROOT / "p%41=x ü")
    assert found.found.startswith("the destination: owner bob,")


async def test_the_root_of_a_container(emulator: AdlsEmulator) -> None:
    root = StorePath(ROOT.scheme, ROOT.authority, "/")
    assert (await access_control(emulator, root)).found.startswith("the destination: owner $superuser")
    elsewhere = await access_control(emulator, root / "elsewhere" / "table")
    assert elsewhere.found.startswith("/, the nearest directory there is")


async def test_a_default_list(emulator: AdlsEmulator) -> None:
    set_list(emulator, ROOT.path, "user:bob:r-x,mask::r-x,default:user::rwx,default:user:bob:r-x,default:other::---")
    found = await access_control(emulator, ROOT)
    assert found.verdict == "warning"
    assert "rwxr-x---+, user:bob:r-x default:user::rwx default:user:bob:r-x" in found.found
    assert "of this default list" in found.found


async def test_entries_that_new_files_do_not_inherit(emulator: AdlsEmulator) -> None:
    set_list(emulator, ROOT.path, ",".join(f"user:reader{number}:r-x" for number in range(9)) + ",mask::r-x")
    found = await access_control(emulator, ROOT)
    assert found.verdict == "warning"
    assert "user:reader5:r-x and 3 more; without a default list" in found.found
    assert found.next_step.startswith("give /test/root a default list")


# --- What goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        Fault("error", status=403, code="AuthorizationFailure", message=f"signature {KEY}"),
        Fault("error", status=500, code="InternalError", message=f"signature {KEY}"),
        Fault("reset"),
    ],
    ids=lambda fault: f"{fault.kind} {fault.status}",
)
async def test_an_answer_that_is_refused_or_lost_is_no_failure(
    emulator: AdlsEmulator, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    emulator.conduct.faults.append(fault)
    found = await findings(store_on(emulator))
    assert verdicts(found) == ["skipped"] * 3
    assert KEY not in f"{found!r} {caplog.text}"


async def test_an_endpoint_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("committer.stores.adls.examine._BOUND_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}/devstoreaccount1"
        store = AdlsStore.open_for(ROOT, {"endpoint": endpoint, "account_key": KEY})
        found = await findings(store)
    assert {one.found for one in found.values()} == {"no answer within 0 s"}


async def test_a_secret_that_cannot_be_found(emulator: AdlsEmulator) -> None:
    for found in (await findings(store_on(emulator, account_key="env:NOT_SET_ANYWHERE"))).values():
        assert (found.verdict, "NOT_SET_ANYWHERE" in found.found, bool(found.next_step)) == ("skipped", True, True)


async def test_asking_changes_nothing(emulator: AdlsEmulator) -> None:
    await findings(store_on(emulator), ROOT / "not" / "there")
    asked = sorted(requests(emulator))
    assert asked == ["get-access-control"] * 3 + ["get-account-information", "get-service-properties"]


async def test_the_ability_is_found_behind_wrappers(emulator: AdlsEmulator) -> None:
    store = open_store(ROOT, {"endpoint": emulator.dfs_url, "account_key": KEY})
    assert EXAMINATION.of(store) is store
    behind = FaultyStore(FaultyStore(store, []), [])
    assert EXAMINATION.of(behind) is behind
    assert EXAMINATION.of(FaultyStore(LocalStore(), [])) is None
    await store.close()
