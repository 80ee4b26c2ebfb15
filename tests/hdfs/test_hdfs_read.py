"""What is read right after it was written."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from committer.errors import RecordError
from committer.paths import StorePath
from committer.stores.hdfs import HdfsStore
from tests.hdfs.cluster import Cluster
from tests.interop.jvm import Jvm

DATA = b"x" * 700


async def test_a_file_whose_last_block_no_data_node_reported_yet(jvm: Jvm, tmp_path: Path) -> None:
    """A NameNode that closes files before that (num-committed-allowed) tells readers a length without that block."""
    cluster = await asyncio.to_thread(
        Cluster, jvm, tmp_path, {"dfs.blockreport.incremental.intervalMsec": "1000", "dfs.heartbeat.interval": "1"}
    )
    root = StorePath("hdfs", cluster.authority, "/")
    store = HdfsStore.open_for(root, {})
    try:
        for number in range(3):
            await store.put(root / f"{number}", DATA)
            assert await store.read(root / f"{number}", limit=1000) == DATA
        await store.put(root / "long", DATA)
        with pytest.raises(RecordError):
            await store.read(root / "long", limit=100)
    finally:
        await store.close()
        await asyncio.to_thread(cluster.close)
