"""Hadoop's own client of S3 (S3A) and its magic committer, in a JVM, on a test's server.

The jars are in no PySpark and no Python package: Maven fetches them once, of the version that PySpark's Hadoop has.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from py4j import java_gateway, protocol

from tests.interop.jvm import Jvm
from tests.interop.maven import dependency, hadoop_jars, hadoop_version
from tests.s3.servers import KEY, KEY_ID, Server

T = TypeVar("T")

IDENTIFIER = "202401010000"
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


class MagicJob:
    """A job of S3A's magic committer; each call makes a new committer, as separate processes would.

    Args:
        jvm: Where Java runs.
        server: The server.
        uri: The destination.
        uuid: The job's id.
        options: More of Hadoop's options.
    """

    def __init__(self, jvm: Jvm, server: Server, uri: str, uuid: str, **options: str) -> None:
        self.id = uuid
        self.uri = uri
        self._jvm = jvm
        self._conf = jvm.view.org.apache.hadoop.conf.Configuration()
        settings = {
            "fs.s3a.endpoint": server.url,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            "fs.s3a.access.key": KEY_ID,
            "fs.s3a.secret.key": KEY,
            "fs.s3a.multipart.size": "5M",
            "fs.s3a.fast.upload.buffer": "bytebuffer",
            "fs.s3a.committer.name": "magic",
            "fs.s3a.committer.uuid": uuid,
            # As a job must have it that is not alone at its destination.
            "fs.s3a.committer.abort.pending.uploads": "false",
            "mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
            **options,
        }
        for key, value in settings.items():
            self._conf.set(key, value)

    async def setup(self) -> None:
        await self.run(lambda: self._committer(self._attempt(0)).setupJob(self._job()))

    async def run_task(self, task: int, files: Mapping[str, bytes], attempt: int = 0, *, commits: bool = True) -> None:
        """Runs a task attempt; without `commits` it is left when its files are written."""

        def run() -> None:
            context = self._attempt(task, attempt)
            committer = self._committer(context)
            committer.setupTask(context)
            work = committer.getWorkPath()
            for name, data in files.items():
                stream = self._filesystem().create(self._path(f"{work}/{name}"), True)
                stream.write(data)
                stream.close()
            if commits:
                committer.commitTask(context)

        await self.run(run)

    async def abort_task(self, task: int, attempt: int = 0) -> None:
        """As a driver does for an attempt of another host."""
        context = self._attempt(task, attempt)
        await self.run(lambda: self._committer(self._attempt(0)).abortTask(context))

    async def commit(self) -> None:
        await self.run(lambda: self._committer(self._attempt(0)).commitJob(self._job()))

    async def success(self) -> dict[str, Any]:
        """`_SUCCESS`, loaded and validated by Java."""

        def load() -> str:
            kind = self._jvm.view.org.apache.hadoop.fs.s3a.commit.files.SuccessData
            loaded = kind.load(self._filesystem(), self._path(f"{self.uri}/_SUCCESS"))
            return str(kind.serializer().toJson(loaded))

        loaded: dict[str, Any] = json.loads(await self.run(load))
        return loaded

    async def length_said_by(self, marker: str) -> str:
        """What the marker of a file that waits says of its length, as Spark asks S3A for it."""
        path = self._path(f"{self.uri}/{marker}")
        name = "header.x-hadoop-s3a-magic-data-length"
        return await self.run(lambda: bytes(self._filesystem().getXAttr(path, name)).decode())

    async def run(self, call: Callable[[], T]) -> T:
        """Runs `call`, which talks to Java, off the event loop."""
        # Once a Spark session was made in this process, PySpark asks that one's Java about every error of any Java.
        with patch.object(java_gateway, "get_return_value", protocol.get_return_value):
            return await asyncio.to_thread(call)

    async def close(self) -> None:
        await self.run(lambda: self._filesystem().close())

    def _path(self, text: str) -> Any:
        return self._jvm.view.org.apache.hadoop.fs.Path(text)

    def _filesystem(self) -> Any:
        return self._path(self.uri).getFileSystem(self._conf)

    def _committer(self, context: Any) -> Any:
        factory = self._jvm.view.org.apache.hadoop.mapreduce.lib.output.PathOutputCommitterFactory
        return factory.createCommitter(self._path(self.uri), context)

    def _job_id(self) -> Any:
        return self._jvm.view.org.apache.hadoop.mapreduce.JobID(IDENTIFIER, 1)

    def _job(self) -> Any:
        return self._jvm.view.org.apache.hadoop.mapreduce.task.JobContextImpl(self._conf, self._job_id())

    def _attempt(self, task: int, attempt: int = 0) -> Any:
        mapreduce = self._jvm.view.org.apache.hadoop.mapreduce
        at = mapreduce.TaskAttemptID(mapreduce.TaskID(self._job_id(), mapreduce.TaskType.MAP, task), attempt)
        return mapreduce.task.TaskAttemptContextImpl(self._conf, at)
