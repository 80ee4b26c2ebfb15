"""Hadoop's own client of Azure Data Lake Storage (ABFS), in a JVM, on an emulated account.

Its jars are in no PySpark and no Python package: Maven fetches them once, of the version that PySpark's Hadoop has, into
build/, where later runs find them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from committer.testing.emulators.adls import AdlsEmulator
from tests.interop.hadoop import in_java
from tests.interop.jvm import Jvm
from tests.interop.maven import dependency, hadoop_jars, hadoop_version
from tests.interop.store_job import ManifestCommitterJob


def jars() -> list[Path]:
    """hadoop-azure and what it needs.

    Raises:
        NoJavaError: They are not there and cannot be fetched; the text says why.
    """
    version = hadoop_version()
    return hadoop_jars(f"hadoop-azure-{version}", [dependency("org.apache.hadoop:hadoop-azure", version)])


class Abfs:
    """Hadoop's FileSystem on one filesystem of an emulated account.

    Args:
        jvm: Where it runs.
        emulator: The account.
        filesystem: The filesystem; made if need be.
        options: More of Hadoop's options.
    """

    def __init__(self, jvm: Jvm, emulator: AdlsEmulator, filesystem: str, **options: str) -> None:
        self._jvm = jvm
        view = jvm.view
        account = f"{emulator.settings.account}.dfs.core.windows.net"
        self.root = f"abfs://{filesystem}@{account}"
        self.conf = view.org.apache.hadoop.conf.Configuration()
        settings = {
            # An address and a port in place of the account's own: the client then puts the account into the path.
            "fs.azure.abfs.endpoint": urlsplit(emulator.url).netloc,
            "fs.azure.always.use.https": "false",
            # The other one, Apache's, wants TLS sockets even where it needs none.
            "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
            "fs.azure.account.auth.type": "SharedKey",
            f"fs.azure.account.key.{account}": emulator.settings.key,
            "fs.azure.createRemoteFileSystemDuringInitialization": "true",
            "fs.azure.io.retry.max.retries": "2",
            "fs.azure.io.retry.backoff.interval": "100",
            "fs.azure.io.retry.min.backoff.interval": "50",
            # One JVM has many accounts, one after the other.
            "fs.abfs.impl.disable.cache": "true",
            **options,
        }
        for key, value in settings.items():
            self.conf.set(key, value)
        self.filesystem: Any = None

    async def open(self) -> Abfs:
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


class ManifestJob(ManifestCommitterJob):
    """A job of Hadoop's manifest committer, bound to Azure.

    Args:
        jvm: Where Java runs.
        abfs: The filesystem, opened.
    """

    def __init__(self, jvm: Jvm, abfs: Abfs) -> None:
        super().__init__(jvm, f"{abfs.root}/table", abfs.conf)
        self._abfs = abfs

    def committer(self, context: Any) -> Any:
        """As Hadoop's factory makes one."""
        factory = self._jvm.view.org.apache.hadoop.fs.azurebfs.commit.AzureManifestCommitterFactory
        return factory().createOutputCommitter(self.path(), context)

    def filesystem(self) -> Any:
        """The one that was opened: Hadoop's cache is off."""
        return self._abfs.filesystem
