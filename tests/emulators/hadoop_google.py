"""Google's connector for Hadoop, in a JVM, on emulated Google Cloud Storage.

Maven fetches its jar once into the user's cache, where later runs find it.
"""

from __future__ import annotations

from pathlib import Path

from committer_testing.emulators.gcs import GcsEmulator
from tests.interop.filesystem import HadoopFileSystem
from tests.interop.jvm import Jvm
from tests.interop.maven import dependency, hadoop_jars

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


def settings(url: str, project: str) -> dict[str, str]:
    """Options of Hadoop for a client of a service that knows no secrets."""
    return {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "fs.gs.storage.root.url": f"{url}/",
        "fs.gs.auth.type": "UNAUTHENTICATED",
        "fs.gs.project.id": project,
        "fs.gs.client.type": "HTTP_API_CLIENT",
        "fs.gs.grpc.enable": "false",
        # Hadoop's own defaults of these, for a client of its own, have suffixes that this one cannot read.
        "fs.gs.block.size": "67108864",
        "fs.gs.outputstream.buffer.size": "8388608",
        "fs.gs.inputstream.inplace.seek.limit": "8388608",
        "fs.gs.inputstream.min.range.request.size": "2097152",
        "fs.gs.rewrite.max.chunk.size": "536870912",
        "fs.gs.outputstream.sync.min.interval": "0",
    }


class Gcs(HadoopFileSystem):
    """Hadoop's FileSystem on one bucket.

    Args:
        jvm: Where it runs.
        emulator: The service.
        bucket: The bucket, which is there.
        options: More of its options.
    """

    def __init__(self, jvm: Jvm, emulator: GcsEmulator, bucket: str, **options: str) -> None:
        chosen = {
            **settings(emulator.url, emulator.settings.project),
            "fs.gs.http.max.retry": "2",
            # One JVM has many services, one after the other.
            "fs.gs.impl.disable.cache": "true",
            **options,
        }
        super().__init__(jvm, f"gs://{bucket}", chosen)
