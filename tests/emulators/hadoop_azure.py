"""Hadoop's own client of Azure Data Lake Storage (ABFS), in a JVM, on an emulated account.

Its jars are in no PySpark and no Python package: Maven fetches them once, of the version that PySpark's Hadoop has, into
the user's cache, where later runs find them.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from committer_testing.emulators.adls import AdlsEmulator
from tests.interop.filesystem import HadoopFileSystem
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


def settings(url: str, account: str, key: str) -> dict[str, str]:
    """Options of Hadoop for a client of an emulated account."""
    return {
        # An address and a port in place of the account's own: the client then puts the account into the path.
        "fs.azure.abfs.endpoint": urlsplit(url).netloc,
        "fs.azure.always.use.https": "false",
        # The other one, Apache's, wants TLS sockets even where it needs none.
        "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
        "fs.azure.account.auth.type": "SharedKey",
        f"fs.azure.account.key.{account}": key,
    }


class Abfs(HadoopFileSystem):
    """Hadoop's FileSystem on one filesystem of an emulated account.

    Args:
        jvm: Where it runs.
        emulator: The account.
        filesystem: The filesystem; made if need be.
        options: More of Hadoop's options.
    """

    def __init__(self, jvm: Jvm, emulator: AdlsEmulator, filesystem: str, **options: str) -> None:
        account = f"{emulator.settings.account}.dfs.core.windows.net"
        root = f"abfs://{filesystem}@{account}"
        chosen = {
            **settings(emulator.url, account, emulator.settings.key),
            "fs.azure.createRemoteFileSystemDuringInitialization": "true",
            "fs.azure.io.retry.max.retries": "2",
            "fs.azure.io.retry.backoff.interval": "100",
            "fs.azure.io.retry.min.backoff.interval": "50",
            # One JVM has many accounts, one after the other.
            "fs.abfs.impl.disable.cache": "true",
            **options,
        }
        super().__init__(jvm, root, chosen)


class ManifestJob(ManifestCommitterJob):
    """A job of Hadoop's manifest committer, bound to Azure."""

    factory = "org.apache.hadoop.fs.azurebfs.commit.AzureManifestCommitterFactory"
