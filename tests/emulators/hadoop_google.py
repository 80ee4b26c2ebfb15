"""Google's connector for Hadoop, in a JVM, on emulated Google Cloud Storage.

Maven fetches its jar once into build/, where later runs find it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from committer.testing.emulators.gcs import GcsEmulator
from tests.interop.hadoop import in_java
from tests.interop.jvm import Jvm
from tests.interop.maven import dependency, hadoop_jars
from tests.interop.store_job import ManifestCommitterJob

VERSION = "3.1.18"


def jars() -> list[Path]:
    """The connector; what it needs is in it.

    Raises:
        NoJavaError: It is not there and cannot be fetched; the text says why.
    """
    connector = "com.google.cloud.bigdataoss:gcs-connector"
    return hadoop_jars(
        f"gcs-connector-{VERSION}", [dependency(connector, VERSION, classifier="shaded", without=["*:*"])]
    )


class Gcs:
    """Hadoop's FileSystem on one bucket.

    Args:
        jvm: Where it runs.
        emulator: The service.
        bucket: The bucket, which is there.
        options: More of its options.
    """

    def __init__(self, jvm: Jvm, emulator: GcsEmulator, bucket: str, **options: str) -> None:
        self._jvm = jvm
        view = jvm.view
        self.root = f"gs://{bucket}"
        self.conf = view.org.apache.hadoop.conf.Configuration()
        settings = {
            "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "fs.gs.storage.root.url": f"{emulator.url}/",
            "fs.gs.auth.type": "UNAUTHENTICATED",
            "fs.gs.project.id": emulator.settings.project,
            "fs.gs.client.type": "HTTP_API_CLIENT",
            "fs.gs.grpc.enable": "false",
            "fs.gs.http.max.retry": "2",
            # Hadoop's own defaults of these, for a client of its own, have suffixes that this one cannot read.
            "fs.gs.block.size": "67108864",
            "fs.gs.outputstream.buffer.size": "8388608",
            "fs.gs.inputstream.inplace.seek.limit": "8388608",
            "fs.gs.inputstream.min.range.request.size": "2097152",
            "fs.gs.rewrite.max.chunk.size": "536870912",
            "fs.gs.outputstream.sync.min.interval": "0",
            # One JVM has many services, one after the other.
            "fs.gs.impl.disable.cache": "true",
            **options,
        }
        for key, value in settings.items():
            self.conf.set(key, value)
        self.filesystem: Any = None

    async def open(self) -> Gcs:
        """Connects."""
        self.filesystem = await in_java(lambda: self.path("/").getFileSystem(self.conf))
        return self

    def path(self, path: str) -> Any:
        """Hadoop's Path. Calls Java."""
        return self._jvm.view.org.apache.hadoop.fs.Path(self.root + path)

    async def write(self, path: str, data: bytes, *, overwrite: bool = True) -> None:
        """Writes a file."""

        def write() -> None:
            stream = self.filesystem.create(self.path(path), overwrite)
            stream.write(data)
            stream.close()

        await in_java(write)

    async def read(self, path: str) -> bytes:
        """Reads a file."""

        def read() -> bytes:
            stream = self.filesystem.open(self.path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return await in_java(read)

    async def names(self, path: str) -> list[str]:
        """The names in a directory."""
        return await in_java(
            lambda: sorted(str(status.getPath().getName()) for status in self.filesystem.listStatus(self.path(path)))
        )

    async def rename(self, source: str, target: str) -> bool:
        """Renames."""
        return await in_java(lambda: bool(self.filesystem.rename(self.path(source), self.path(target))))

    async def close(self) -> None:
        """Disconnects."""
        await in_java(self.filesystem.close)


class GoogleManifestJob(ManifestCommitterJob):
    """A job of Hadoop's manifest committer.

    Args:
        jvm: Where Java runs.
        gcs: The filesystem, opened.
    """

    def __init__(self, jvm: Jvm, gcs: Gcs) -> None:
        super().__init__(jvm, f"{gcs.root}/table", gcs.conf)
        self._gcs = gcs

    def committer(self, context: Any) -> Any:
        """As Hadoop's factory makes one."""
        factory = self._jvm.view.org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory
        return factory().createOutputCommitter(self.path(), context)

    def filesystem(self) -> Any:
        """The one that was opened: Hadoop's cache is off."""
        return self._gcs.filesystem
