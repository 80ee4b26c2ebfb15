"""The suite that every store passes, against a real NameNode."""

from __future__ import annotations

import pytest

from committer.paths import StorePath
from committer.stores.base import Store
from committer.testing.conformance import Channel, StoreConformance
from tests.hdfs.channel import JavaChannel
from tests.hdfs.cluster import Cluster


class TestHdfs(StoreConformance):
    many = 60
    # A colon is in no name of HDFS (``DFSUtil.isValidName``).
    awkward_names = tuple(name for name in StoreConformance.awkward_names if ":" not in name)

    @pytest.fixture
    def root(self, directory: StorePath) -> StorePath:
        return directory

    @pytest.fixture
    def store(self, hdfs_store: Store) -> Store:
        return hdfs_store

    @pytest.fixture
    def channel(self, cluster: Cluster, root: StorePath) -> Channel:
        return JavaChannel(cluster, root)
