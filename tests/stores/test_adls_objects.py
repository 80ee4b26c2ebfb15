"""Clients and credentials of Azure's own packages as storage options: they authenticate, and never leave their process."""

from __future__ import annotations

import pickle
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import committer
from committer.errors import ConfigurationError
from committer.stores.adls import AdlsStore
from committer_testing.emulators.adls import AdlsEmulator, Settings, serve
from tests.emulators.tls import certificate_in
from tests.stores.adls_account import ROOT, AccountChannel, account_fixture, put_files, signature
from tests.stores.test_adls_access import KEY, TOKEN, AsyncCredential, Credential

blocking = pytest.importorskip("azure.storage.filedatalake", reason="its clients are what is given")
waiting = pytest.importorskip("azure.storage.filedatalake.aio")
core = pytest.importorskip("azure.core.credentials")

Make = Callable[[str, Any], Any]
KINDS: dict[str, Make] = {
    "service": lambda url, credential: blocking.DataLakeServiceClient(url, credential),
    "filesystem": lambda url, credential: blocking.FileSystemClient(url, "data", credential=credential),
    "service, async": lambda url, credential: waiting.DataLakeServiceClient(url, credential),
    "filesystem, async": lambda url, credential: waiting.FileSystemClient(url, "data", credential=credential),
}


emulator = account_fixture(Settings(key=KEY))


async def commits(emulator: AdlsEmulator, options: dict[str, object]) -> None:
    """A job with these options publishes its file."""
    async with committer.open_job(ROOT / "table", storage_options=options) as job:
        async with job.task_attempt(0) as task, task.open("a=1/file") as file:
            await file.write(b"1")
    assert (await AccountChannel(emulator).files())["table/a=1/file"] == b"1"


async def let_go(client: Any) -> None:
    closing = client.close()
    if closing is not None:
        await closing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("credential", ["key", "named key", "signature", "signature in the URL"])
async def test_a_client_lets_in(emulator: AdlsEmulator, kind: str, credential: str) -> None:
    given = {
        "key": KEY,
        "named key": core.AzureNamedKeyCredential("devstoreaccount1", KEY),
        "signature": core.AzureSasCredential(signature(emulator)),
        "signature in the URL": signature(emulator),
    }[credential]
    client = KINDS[kind](emulator.url, given)
    await commits(emulator, {"client": client})
    pickled = pickle.dumps(AdlsStore.open_for(ROOT, {"client": client}))
    assert KEY.encode() not in pickled
    assert b"sig=" not in pickled
    store = pickle.loads(pickled)
    with pytest.raises(ConfigurationError, match="option client was given as an object, which never leaves") as caught:
        await store.status(ROOT)
    assert "storage_options in each process" in caught.value.next_step
    await store.close()
    await let_go(client)


async def test_a_client_of_a_connection_string(emulator: AdlsEmulator) -> None:
    text = f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={KEY};BlobEndpoint={emulator.url}"
    client = blocking.DataLakeServiceClient.from_connection_string(text)
    await commits(emulator, {"client": client})
    client.close()


@pytest.mark.parametrize("credential", [Credential(), AsyncCredential()])
async def test_a_client_with_a_credential_that_gives_tokens(tmp_path: Path, credential: Any) -> None:
    certificate = certificate_in(tmp_path)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with serve(Settings(key=KEY, bearer_tokens=frozenset({TOKEN})), ssl_context=serving) as emulator:
        put_files(emulator)
        client = blocking.DataLakeServiceClient(emulator.url, credential)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session:
            await commits(emulator, {"client": client, "http_session": session})
        assert credential.asked >= 1
        client.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: blocking.DataLakeServiceClient("https://other.dfs.core.windows.net", KEY), "for data@other"),
        (
            lambda: blocking.FileSystemClient("https://devstoreaccount1.dfs.core.windows.net", "date", credential=KEY),
            "for date@devstoreaccount1",
        ),
        (lambda: blocking.DataLakeServiceClient("https://devstoreaccount1.dfs.core.windows.net"), "no credential"),
        (
            lambda: blocking.DataLakeDirectoryClient(
                "https://devstoreaccount1.dfs.core.windows.net", "data", "d", credential=KEY
            ),
            "is a DataLakeDirectoryClient",
        ),
        (lambda: "https://devstoreaccount1.dfs.core.windows.net", "is a str"),
    ],
)
def test_clients_that_do_not_fit(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        AdlsStore.open_for(ROOT, {"client": make()})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("more", [{"endpoint": "https://h"}, {"account_key": KEY}, {"sas_token": "sig=1"}])
def test_a_client_says_it_all(more: dict[str, object]) -> None:
    client = blocking.DataLakeServiceClient("https://devstoreaccount1.dfs.core.windows.net", KEY)
    with pytest.raises(ConfigurationError, match="exclude one another"):
        AdlsStore.open_for(ROOT, {"client": client, **more})


def test_an_http_session_goes_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match="http_session="):
        AdlsStore.open_for(ROOT, {"account_key": KEY, "session": object()})
