"""Stores that are servers, to which Spark's own writers write through the commit protocol.

Each is served by a process, and written to by a Spark driver that is given the store's Hadoop client, and nothing for
Python: what Python needs to know it finds in the session.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from committer.paths import StorePath
from committer_testing.emulators.adls import DEFAULT_KEY
from tests.emulators import hadoop_azure, hadoop_google
from tests.hdfs.channel import JavaChannel
from tests.hdfs.cluster import Cluster
from tests.hdfs.cluster import jars as server_jars
from tests.interop.jvm import Jvm, NoJavaError
from tests.s3 import hadoop_s3a
from tests.s3.servers import BUCKET, KEY, KEY_ID, Server, seaweedfs
from tests.spark.cluster import Driver
from tests.stores.adls_account import AUTHORITY
from tests.stores.adls_process import Account, account_process
from tests.stores.gcs_process import RemoteBucket, bucket_process

SCRIPT = Path(__file__).with_name("protocol_store_driver.py")


@dataclass
class Place:
    """A store that runs, and how sessions reach it.

    Attributes:
        name: Its scheme.
        root: The URI of a directory there.
        jars: Hadoop's client of it.
        hadoop: Keys of the session.
        python: How this process reaches it.
        server: What runs.
        settings: More settings of sessions.
    """

    name: str
    root: str
    jars: list[Path]
    hadoop: dict[str, str]
    python: dict[str, object]
    server: Any
    settings: dict[str, str] = field(default_factory=dict)

    def uri(self, path: str) -> str:
        return f"{self.root}/{path}"

    def read(self, directory: str) -> dict[str, bytes]:
        """Every file below a directory, as a client reads it that is not the engine's."""
        found: dict[str, bytes] = self.server.files(directory)
        return found

    def driver(
        self, scratch: Path, hadoop: Mapping[str, str] | None = None, master: str = "local[2,2]", **variables: str
    ) -> Driver:
        """A driver whose session has the store's client, and these keys more."""
        settings = {
            "spark.jars": ",".join(map(str, self.jars)),
            **{f"spark.hadoop.{key}": value for key, value in {**self.hadoop, **(hadoop or {})}.items()},
            **self.settings,
        }
        scratch.mkdir(parents=True, exist_ok=True)
        return Driver(master, scratch, SCRIPT, {"SPARK_SETTINGS": json.dumps(settings), **variables})


@contextmanager
def azure(_scratch: Path, key: str = DEFAULT_KEY) -> Iterator[Place]:
    """An emulated account."""
    with account_process(key=key) as account:
        host = AUTHORITY.partition("@")[2]
        hadoop = hadoop_azure.settings(account.url, host, account.key)
        python: dict[str, object] = {"endpoint": account.url, "account_key": account.key}
        yield Place("abfs", f"abfs://{AUTHORITY}", hadoop_azure.jars(), hadoop, python, _Account(account))


class _Account:
    def __init__(self, account: Account) -> None:
        self.account = account

    def files(self, directory: str) -> dict[str, bytes]:
        exceptions = pytest.importorskip("azure.core.exceptions")
        try:
            return self.account.files(directory)
        except exceptions.ResourceNotFoundError:
            return {}


class _Bucket(RemoteBucket):
    def files(self, directory: str) -> dict[str, bytes]:
        return {name: self.read(f"{directory}/{name}") for name in self.sizes(directory)}


@contextmanager
def google(_scratch: Path, *, client: bool = True) -> Iterator[Place]:
    """An emulated bucket; Hadoop's client of it is looked for only if `client`."""
    with bucket_process() as served:
        bucket = _Bucket(served.url)
        hadoop = {
            **hadoop_google.settings(bucket.url, "none"),
            # The connector calls a method that this Hadoop has not.
            "parquet.hadoop.vectored.io.enabled": "false",
        }
        yield Place("gs", "gs://data", hadoop_google.jars() if client else [], hadoop, {"endpoint": bucket.url}, bucket)


class _Objects:
    def __init__(self, server: Server) -> None:
        self.server = server

    def files(self, directory: str) -> dict[str, bytes]:
        client = self.server.client
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{directory}/")
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        return {
            key.removeprefix(f"{directory}/"): client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys
        }

    def uploads(self) -> list[str]:
        found = self.server.client.list_multipart_uploads(Bucket=BUCKET)
        return [upload["Key"] for upload in found.get("Uploads", ())]


@contextmanager
def amazon(scratch: Path, *, client: bool = True) -> Iterator[Place]:
    """A server that speaks S3; Hadoop's client of it is looked for only if `client`."""
    with seaweedfs(scratch) as server:
        python: dict[str, object] = {
            "endpoint_url": server.url,
            "region": "us-east-1",
            "access_key_id": KEY_ID,
            "secret_access_key": KEY,
        }
        yield Place(
            "s3a",
            f"s3a://{BUCKET}",
            hadoop_s3a.jars() if client else [],
            hadoop_s3a.settings(server),
            python,
            _Objects(server),
        )


class _Files:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def files(self, directory: str) -> dict[str, bytes]:
        channel = JavaChannel(self.cluster, StorePath("hdfs", self.cluster.authority, f"/{directory}"))
        if not self.cluster.hdfs.exists(self.cluster.path(f"/{directory}")):
            return {}
        return asyncio.run(channel.files())


@contextmanager
def name_node(scratch: Path) -> Iterator[Place]:
    """A NameNode with DataNodes."""
    jvm = Jvm(scratch, server_jars())
    try:
        cluster = Cluster(jvm, scratch / "hdfs")
        root = f"hdfs://{cluster.authority}"
        yield Place("hdfs", root, [], {"dfs.replication": "2"}, {}, _Files(cluster))
    finally:
        jvm.close()


PLACES: Mapping[str, Callable[..., AbstractContextManager[Place]]] = {
    "abfs": azure,
    "gs": google,
    "s3a": amazon,
    "hdfs": name_node,
}


@contextmanager
def place_of(name: str, scratch: Path, **how: Any) -> Iterator[Place]:
    """The store of a scheme; skips the test where its client's jars are not to be had."""
    scratch.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            place = stack.enter_context(PLACES[name](scratch, **how))
        except NoJavaError as error:
            pytest.skip(str(error))
        yield place
