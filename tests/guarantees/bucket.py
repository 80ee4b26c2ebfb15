"""A destination in an emulated bucket of Google Cloud Storage, seen past the store."""

from __future__ import annotations

from committer.errors import StoreError
from committer.paths import StorePath
from committer.stores.base import Store
from committer_testing.emulators.gcs import GcsEmulator
from committer_testing.emulators.gcs.namespace import Draft
from committer_testing.emulators.gcs.objects import Bucket
from committer_testing.emulators.gcs.preconditions import Preconditions
from committer_testing.simulate.worlds import OUT
from tests.guarantees.walked import WalkedWorld
from tests.stores.gcs_bucket import store_on


class BucketWorld(WalkedWorld):
    """The bucket `data`, new."""

    def __init__(self, emulator: GcsEmulator) -> None:
        self._emulator = emulator
        emulator.make_bucket("data")

    @property
    def destination(self) -> StorePath:
        return StorePath("gs", "data", f"/{OUT}")

    def store(self) -> Store:
        return store_on(self._emulator)

    def files(self, but: str | None = None) -> dict[str, bytes]:
        return {
            name: one.data
            for name, one in self._bucket.objects.items()
            if but is None or not name.startswith(f"{but}/")
        }

    def read(self, name: str) -> bytes | None:
        found = self._bucket.objects.get(name)
        return None if found is None else found.data

    def directories(self) -> set[str]:
        return set()

    def write(self, name: str, data: bytes) -> None:
        self._emulator.namespace.insert("data", name, data, Draft(), Preconditions({}))

    def remove(self, name: str) -> None:
        if self.read(name) is None:
            raise StoreError("no file is there", path=name)
        self._bucket.remove(name)

    def forget(self) -> None:
        self._emulator.namespace.buckets.clear()

    @property
    def _bucket(self) -> Bucket:
        return self._emulator.namespace.buckets["data"]
