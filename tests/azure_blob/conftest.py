"""One Azurite for all tests of a process, which xdist keeps together."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec

import pytest

from committer.paths import StorePath

_numbers = itertools.count()

if find_spec("azure") is None or find_spec("azure.storage") is None or find_spec("azure.storage.blob") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from committer.stores.azure_blob import AzureBlobStore
    from tests.azure_blob.azurite import CONTAINER, KEY, KEY_IS_IN, Azurite, azurite
    from tests.azure_blob.container import ContainerChannel
    from tests.s3.proxy import Proxy, proxy_to


@pytest.fixture(scope="session")
def azurite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def server(azurite_server: Azurite) -> Azurite:
    """The server a test runs against."""
    return azurite_server


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's key, for references to find; nothing else of this machine's is seen."""
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(KEY_IS_IN, KEY)


@pytest.fixture
async def proxy(server: Azurite) -> AsyncIterator[Proxy]:
    """A proxy before it."""
    async with proxy_to(server.endpoint.rpartition("/")[0]) as proxy:
        yield proxy


@pytest.fixture
def root() -> StorePath:
    """A directory of its own for every test."""
    return StorePath("az", CONTAINER, f"/test-{next(_numbers)}/root")


@pytest.fixture
def channel(server: Azurite, root: StorePath) -> ContainerChannel:
    return ContainerChannel(server, root)


@pytest.fixture
def options(server: Azurite) -> dict[str, object]:
    return server.options()


@pytest.fixture
async def store(server: Azurite, root: StorePath) -> AsyncIterator[AzureBlobStore]:
    store = AzureBlobStore.open_for(root, server.options())
    yield store
    await store.close()
