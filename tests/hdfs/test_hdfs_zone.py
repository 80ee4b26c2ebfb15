"""An encryption zone on a real NameNode, and a client that cannot have its keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import committer
from committer.errors import StoreError, StoreOutcomeUnknownError, StoreUnavailableError
from committer.paths import StorePath
from committer.stores.hdfs import HdfsStore
from tests.hdfs.cluster import Cluster
from tests.interop.jvm import Jvm

KEY = "of-the-zone"
PROVIDER = "hadoop.security.key.provider.path"


@pytest.fixture
def zone(jvm: Jvm, tmp_path: Path) -> Iterator[tuple[Cluster, StorePath]]:
    """A cluster of its own, and a directory of it that is a zone. Its keys are in a file, which Java alone reads."""
    java: Any = jvm.view
    configuration = java.org.apache.hadoop.conf.Configuration()
    provider = f"jceks://file{tmp_path}/keys.jceks"
    configuration.set(PROVIDER, provider)
    keys = java.org.apache.hadoop.crypto.key.KeyProviderFactory.getProviders(configuration).get(0)
    keys.createKey(KEY, java.org.apache.hadoop.crypto.key.KeyProvider.options(configuration).setBitLength(128))
    keys.flush()
    cluster = Cluster(jvm, tmp_path, {PROVIDER: provider})
    try:
        cluster.hdfs.mkdirs(cluster.path("/zone"))
        flags = java.org.apache.hadoop.hdfs.client.CreateEncryptionZoneFlag
        admin = java.org.apache.hadoop.hdfs.client.HdfsAdmin(cluster.hdfs.getUri(), cluster.hdfs.getConf())
        admin.createEncryptionZone(cluster.path("/zone"), KEY, java.java.util.EnumSet.of(flags.NO_TRASH))
        cluster.hdfs.create(cluster.path("/zone/f")).close()
        yield cluster, StorePath("hdfs", cluster.authority, "/zone")
    finally:
        cluster.close()


@pytest.mark.slow  # Twenty seconds, for servers of its own.
async def test_what_cannot_be_done_says_what_to_do(zone: tuple[Cluster, StorePath]) -> None:
    cluster, root = zone
    store = HdfsStore.open_for(root, {})
    try:
        with pytest.raises(StoreError, match="encryption zone") as moved:
            await store.rename_file(root / "f", StorePath("hdfs", cluster.authority, "/f"))
        assert "in one whole" in (moved.value.next_step or "")
        assert (await store.status(root / "f")).size == 0
        for call in (store.read(root / "f", limit=10), store.put(root / "g", b"x"), store.open_writer(root / "h")):
            with pytest.raises(StoreError, match="key was not to be had") as refused:
                await call
            assert not isinstance(refused.value, StoreOutcomeUnknownError | StoreUnavailableError)
            assert PROVIDER in (refused.value.next_step or "")
        assert {child.path.name async for child in store.list(root)} <= {"f", "h"}
    finally:
        await store.close()
    with pytest.raises(StoreError, match="key was not to be had"):
        await committer.open_job(f"{root}/table")
    assert await committer.list_jobs(f"{root}/table") == []
