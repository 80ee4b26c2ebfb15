"""One server of each kind for all tests of a process, which xdist keeps together."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec

import pytest

from committer.paths import StorePath

_numbers = itertools.count()

if find_spec("boto3") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from committer.stores.s3 import S3Store
    from tests.s3.bucket import KEY_ID_IS_IN, KEY_IS_IN, BucketChannel, options_for
    from tests.s3.proxy import Proxy, Trouble, proxy_to
    from tests.s3.servers import BUCKET, KEY, KEY_ID, Server, moto, other, seaweedfs


@pytest.fixture(scope="session")
def seaweedfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def minio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with other("MinIO", tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers' keys, for references to find; nothing else of this machine's is seen."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv(KEY_ID_IS_IN, KEY_ID)
    monkeypatch.setenv(KEY_IS_IN, KEY)


@pytest.fixture(autouse=True)
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen of a service in another test is forgotten: its address may be another one's by now."""
    monkeypatch.setattr("committer.stores.s3.deletes._ignoring", set())


@pytest.fixture
def server(seaweedfs_server: Server) -> Server:
    """The server a test runs against, unless it says another."""
    return seaweedfs_server


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    """A proxy before it."""
    async with proxy_to(server.url) as proxy:
        yield proxy


@pytest.fixture
def root() -> StorePath:
    """A directory of its own for every test."""
    return StorePath("s3", BUCKET, f"/test-{next(_numbers)}/root")


@pytest.fixture
def options(server: Server) -> dict[str, object]:
    return options_for(server)


@pytest.fixture
def channel(server: Server, root: StorePath) -> BucketChannel:
    return BucketChannel(server.client, root)


@pytest.fixture
async def store(options: dict[str, object], root: StorePath) -> AsyncIterator[S3Store]:
    store = S3Store.open_for(root, options)
    yield store
    await store.close()


@pytest.fixture
async def proxied(proxy: Proxy, root: StorePath) -> AsyncIterator[S3Store]:
    """A store whose requests go through the proxy."""
    store = S3Store.open_for(root, options_for(Server("proxy", proxy.url)))
    yield store
    await store.close()


@pytest.fixture
def tokens(root: StorePath) -> list[Trouble]:
    """Answers to what carries a session token: the servers know none."""
    return [Trouble("answer", method="PUT", status=200, headers={"ETag": '"1"'}, times=100)]
