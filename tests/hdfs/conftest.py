"""One NameNode for all of these tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from committer.paths import StorePath
from tests.hdfs.channel import JavaChannel
from tests.hdfs.cluster import Cluster, jars
from tests.interop.jvm import Jvm, jvm_fixture

if find_spec("hdfs_native") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from committer.stores.hdfs import HdfsStore

HERE = f"{Path(__file__).parent}{os.sep}"
_numbers = itertools.count()


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE) and "jvm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.java)


jvm = jvm_fixture(jars)


@pytest.fixture(scope="session")
def cluster(jvm: Jvm, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(jvm, tmp_path_factory.mktemp("hdfs"))


@pytest.fixture
def directory(cluster: Cluster) -> StorePath:
    """A directory of a test's own."""
    path = StorePath("hdfs", cluster.authority, f"/test-{next(_numbers)}/root")
    cluster.hdfs.mkdirs(cluster.path(path.path))
    return path


@pytest.fixture
def table(cluster: Cluster, directory: StorePath) -> JavaChannel:
    return JavaChannel(cluster, directory)


@pytest.fixture
async def hdfs_store(directory: StorePath) -> AsyncIterator[HdfsStore]:
    store = HdfsStore.open_for(directory, {})
    yield store
    await store.close()
