"""The suite that every store passes, against the emulator, with a token and without, with moves and without."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from committer.paths import StorePath
from committer.stores.base import Store
from committer.testing.conformance import Channel, StoreConformance
from committer_testing.emulators.gcs import GcsEmulator, Settings, serve
from tests.stores.gcs_bucket import ROOT, BucketChannel, store_on

TOKEN = "ya29.canary"


class _OnBucket(StoreConformance):
    many = 60
    # The service takes no line breaks ("Object names").
    awkward_names = tuple(name for name in StoreConformance.awkward_names if "\n" not in name)
    settings = Settings(list_page=25)

    @pytest.fixture
    async def emulator(self) -> AsyncIterator[GcsEmulator]:
        async with serve(self.settings) as emulator:
            emulator.make_bucket("data")
            yield emulator

    @pytest.fixture
    def root(self) -> StorePath:
        return ROOT

    @pytest.fixture
    def channel(self, emulator: GcsEmulator) -> Channel:
        return BucketChannel(emulator)

    @pytest.fixture
    async def store(self, emulator: GcsEmulator) -> AsyncIterator[Store]:
        store = store_on(emulator)
        yield store
        await store.close()


@pytest.mark.every_loop
class TestGcs(_OnBucket):
    """Without a token."""


class TestGcsByToken(_OnBucket):
    """By a token, on a bucket with a hierarchical namespace, whose files are the same."""

    settings = Settings(
        list_page=25, bearer_tokens=frozenset({TOKEN}), hierarchical=True, condition_on_absent="condition"
    )

    @pytest.fixture
    async def store(self, emulator: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
        monkeypatch.setenv("GCS_TEST_TOKEN", TOKEN)
        store = store_on(emulator, token="env:GCS_TEST_TOKEN")
        yield store
        await store.close()
