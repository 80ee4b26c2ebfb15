"""One job of two worlds on an emulated bucket: Hadoop's manifest committer and this one, each taking over from the other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from committer_testing.emulators.gcs import Fault, GcsEmulator
from tests.interop.jvm import Jvm
from tests.interop.store_job import ManifestCommitterJob

from .hadoop_google import Gcs
from .java_jobs import JavaJobs, Place

pytestmark = pytest.mark.java


class Bucket(Place):
    """An emulated bucket."""

    renames = "move"
    # Java sends a request whose answer was lost again, with the token it had, and the service repeats its answer.
    lost_in_java = ({"kind": "reset-after", "count": 1},)
    recovered_by_java = 0

    def __init__(self, job: ManifestCommitterJob, gcs: GcsEmulator) -> None:
        super().__init__(job, {"endpoint": gcs.url}, gcs.conduct, Fault)
        self._gcs = gcs

    def all_files(self) -> dict[str, bytes]:
        """Every object but those that stand for directories."""
        return {
            name.removeprefix("table/"): one.data
            for name, one in self._gcs.namespace.buckets["data"].objects.items()
            if not name.endswith("/")
        }


@pytest.fixture
async def place(google_jvm: Jvm, gcs: GcsEmulator) -> AsyncIterator[Bucket]:
    connector = await Gcs(google_jvm, gcs, "data").open()
    yield Bucket(ManifestCommitterJob(google_jvm, connector), gcs)
    await connector.close()


class TestGcs(JavaJobs):
    """On a bucket."""
