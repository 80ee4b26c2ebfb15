"""The suite that every store passes, against the emulated account, with each way of authentication and of writing records."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from committer.paths import StorePath
from committer.stores.base import Store
from committer.testing.conformance import Channel, StoreConformance
from committer_testing.emulators.adls import AdlsEmulator, Fault, Settings, serve
from tests.stores.adls_account import ROOT, AccountChannel, put_files, signature, store_on


class _OnAccount(StoreConformance):
    many = 60
    settings = Settings(list_page=25, delete_page=7)

    @pytest.fixture
    async def emulator(self) -> AsyncIterator[AdlsEmulator]:
        async with serve(self.settings) as emulator:
            put_files(emulator)
            yield emulator

    @pytest.fixture
    def root(self) -> StorePath:
        return ROOT

    @pytest.fixture
    def channel(self, emulator: AdlsEmulator) -> Channel:
        return AccountChannel(emulator)

    @pytest.fixture
    async def store(self, emulator: AdlsEmulator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
        monkeypatch.setenv("ADLS_TEST_KEY", emulator.settings.key)
        store = store_on(emulator, account_key="env:ADLS_TEST_KEY")
        yield store
        await store.close()


@pytest.mark.every_loop
class TestAdls(_OnAccount):
    """By account key, records by Put Blob."""


class TestAdlsBySignature(_OnAccount):
    """By shared access signature, which the source of a rename carries too."""

    @pytest.fixture
    async def store(self, emulator: AdlsEmulator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
        monkeypatch.setenv("ADLS_TEST_SAS", signature(emulator))
        store = store_on(emulator, account_key=None, sas_token="env:ADLS_TEST_SAS")
        yield store
        await store.close()


class TestAdlsWithoutBlobs(_OnAccount):
    """Records by a file and a rename; and an account that has other codes for the same refusals."""

    settings = Settings(
        list_page=25,
        delete_page=7,
        non_empty_target_code="PathAlreadyExists",
        type_change_code="PathConflict",
        overwriting_breaks_lease=False,
    )

    @pytest.fixture
    async def store(self, emulator: AdlsEmulator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
        emulator.conduct.faults.append(Fault("error", operation="put-blob", status=403, code="AuthorizationFailure"))
        monkeypatch.setenv("ADLS_TEST_KEY", emulator.settings.key)
        store = store_on(emulator, account_key="env:ADLS_TEST_KEY")
        yield store
        await store.close()
