"""Hadoop's own client of S3 (S3A) and its committers, in a JVM, on a test's server.

The jars are in no PySpark and no Python package: Maven fetches them once, of the version that PySpark's Hadoop has.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.interop.hadoop import in_java
from tests.interop.jvm import Jvm
from tests.interop.maven import dependency, hadoop_jars, hadoop_version
from tests.interop.store_job import StoreJob
from tests.s3.servers import KEY, KEY_ID, Server

# hadoop-aws wants all of the SDK, 600 MB of it. These modules are what its committer uses, of the version of
# hadoop-project 3.5.0.
_SDK = "2.35.4"
_MODULES = ("s3", "s3-transfer-manager", "sts")


def jars() -> list[Path]:
    """hadoop-aws and what it needs.

    Raises:
        NoJavaError: They are not there and cannot be fetched; the text says why.
    """
    version = hadoop_version()
    wanted = [dependency("org.apache.hadoop:hadoop-aws", version, without=["software.amazon.awssdk:bundle"])]
    wanted += [dependency(f"software.amazon.awssdk:{module}", _SDK) for module in _MODULES]
    return hadoop_jars(f"hadoop-aws-{version}", wanted)


def settings(server: Server) -> dict[str, str]:
    """Options of Hadoop for a client of a server."""
    return {
        "fs.s3a.endpoint": server.url,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "fs.s3a.access.key": KEY_ID,
        "fs.s3a.secret.key": KEY,
        "fs.s3a.fast.upload.buffer": "bytebuffer",
    }


class MagicJob(StoreJob):
    """A job of S3A's magic committer.

    Args:
        jvm: Where Java runs.
        server: The server.
        uri: The destination.
        uuid: The job's id.
        options: More of Hadoop's options.
    """

    def __init__(self, jvm: Jvm, server: Server, uri: str, uuid: str, **options: str) -> None:
        conf = jvm.view.org.apache.hadoop.conf.Configuration()
        chosen = {
            **settings(server),
            "fs.s3a.multipart.size": "5M",
            "fs.s3a.committer.name": "magic",
            "fs.s3a.committer.uuid": uuid,
            # As a job must have it that is not alone at its destination.
            "fs.s3a.committer.abort.pending.uploads": "false",
            "mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
            **options,
        }
        for key, value in chosen.items():
            conf.set(key, value)
        super().__init__(jvm, uri, conf, uuid=uuid)

    def committer(self, context: Any) -> Any:
        """As Hadoop's output formats make one."""
        factory = self._jvm.view.org.apache.hadoop.mapreduce.lib.output.PathOutputCommitterFactory
        return factory.createCommitter(self.path(), context)

    async def success(self) -> dict[str, Any]:
        """`_SUCCESS`, loaded and validated by Java."""

        def load() -> str:
            kind = self._jvm.view.org.apache.hadoop.fs.s3a.commit.files.SuccessData
            loaded = kind.load(self.filesystem(), self.path("_SUCCESS"))
            return str(kind.serializer().toJson(loaded))

        loaded: dict[str, Any] = json.loads(await in_java(load))
        return loaded

    async def length_said_by(self, marker: str) -> str:
        """What the marker of a file that waits says of its length, as Spark asks S3A for it."""
        name = "header.x-hadoop-s3a-magic-data-length"
        return await in_java(lambda: bytes(self.filesystem().getXAttr(self.path(marker), name)).decode())

    async def close(self) -> None:
        """Closes Hadoop's client."""
        await in_java(lambda: self.filesystem().close())


class StagingJob(MagicJob):
    """A job of one of S3A's staging committers, whose cluster's file system is a disk.

    Args:
        jvm: Where Java runs.
        server: The server.
        uri: The destination.
        uuid: The job's id.
        disk: Below it are the place of the pending sets and the files of task attempts.
        name: Which of the committers.
        options: More of Hadoop's options.
    """

    def __init__(
        self, jvm: Jvm, server: Server, uri: str, uuid: str, disk: Path, name: str = "directory", **options: str
    ) -> None:
        chosen = {
            "fs.s3a.committer.name": name,
            "fs.defaultFS": "file:///",
            "fs.s3a.committer.staging.tmp.path": f"file:{disk}/pending",
            "fs.s3a.committer.staging.unique-filenames": "false",
            "fs.s3a.buffer.dir": f"{disk}/java",
        }
        super().__init__(jvm, server, uri, uuid, **{**chosen, **options})

    def filesystem_of(self, work: Any) -> Any:
        """The disk's."""
        return work.getFileSystem(self._conf)

    async def user(self) -> str:
        """Whom Hadoop takes the process for."""
        security = self._jvm.view.org.apache.hadoop.security
        return await in_java(lambda: str(security.UserGroupInformation.getCurrentUser().getShortUserName()))
