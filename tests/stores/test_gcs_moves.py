"""A service that lacks moves or ignores their conditions, which no job may run on."""

from __future__ import annotations

import pytest

from committer.errors import StoreError, StoreOutcomeUnknownError, StoreThrottledError, UnsupportedError
from committer_testing.emulators.gcs import Fault, Settings
from tests.stores.gcs_bucket import ROOT, requests, serve_store

SOURCE, TARGET = ROOT / "source", ROOT / "target"


@pytest.mark.parametrize("status", [400, 404, 405, 501])
async def test_a_service_without_moves_is_refused_at_setup(status: int) -> None:
    async with serve_store(Settings(has_move=False, missing_move_status=status)) as (store, emulator):
        with pytest.raises(UnsupportedError, match="moveTo"):
            await store.probe(ROOT)
        assert requests(emulator, "move") == ["move"]
        assert emulator.namespace.buckets["data"].objects == {}


async def test_a_lost_answer_is_not_taken_for_a_service_without_moves() -> None:
    async with serve_store() as (store, emulator):
        emulator.conduct.faults.append(Fault("reset", operation="move", count=1))
        with pytest.raises(StoreOutcomeUnknownError):
            await store.probe(ROOT)
        emulator.conduct.faults.append(Fault("reset-after", operation="move", count=1))
        await store.probe(ROOT)
        assert emulator.namespace.buckets["data"].objects == {}


async def test_a_service_that_moved_once_is_never_taken_for_one_without() -> None:
    async with serve_store() as (store, emulator):
        await store.put(SOURCE, b"1")
        await store.rename_file(SOURCE, TARGET)
        emulator.conduct.faults.append(Fault("error", operation="move", status=501, code="notImplemented"))
        with pytest.raises(StoreError, match="does not know this request") as caught:
            await store.rename_file(TARGET, SOURCE)
        assert not isinstance(caught.value, UnsupportedError)


async def test_doctor_asks_for_the_right_to_move() -> None:
    lacking = Settings(denied=frozenset({"storage.objects.move"}))
    async with serve_store(lacking) as (store, _emulator):
        found = {one.name: one for one in await store.findings(ROOT)}["permissions"]
        assert (found.verdict, found.found) == ("failed", "missing: storage.objects.move")


@pytest.mark.parametrize(("has_move", "verdict"), [(True, "ok"), (False, "failed")])
async def test_doctor_says_whether_files_are_moved(has_move: bool, verdict: str) -> None:
    async with serve_store(Settings(has_move=has_move)) as (store, emulator):
        found = {one.name: one for one in await store.findings(ROOT)}["renames"]
        assert (found.verdict, "moveTo" in found.found) == (verdict, True)
        assert emulator.namespace.buckets["data"].objects == {}


@pytest.mark.parametrize(
    "ignored",
    [
        ("move", "ifSourceGenerationMatch"),
        ("move", "ifSourceMetagenerationMatch"),
        ("move", "ifGenerationMatch"),
        ("insert", "ifGenerationMatch"),
    ],
    ids="-".join,
)
async def test_a_service_that_ignores_a_condition_is_refused_at_setup(ignored: tuple[str, str]) -> None:
    async with serve_store(Settings(ignored_conditions=frozenset({ignored}))) as (store, emulator):
        with pytest.raises(UnsupportedError, match=ignored[1]):
            await store.probe(ROOT)
        assert emulator.namespace.buckets["data"].objects == {}


@pytest.mark.parametrize("status", [429, 503])
async def test_a_trial_that_the_service_did_not_answer_proves_nothing(status: int) -> None:
    async with serve_store() as (store, emulator):
        # A rename, and one that is refused, come first.
        emulator.conduct.faults.append(Fault("error", operation="move", skip=2, status=status, code="backendError"))
        with pytest.raises(StoreThrottledError if status == 429 else StoreOutcomeUnknownError):
            await store.probe(ROOT)
        assert emulator.namespace.buckets["data"].objects == {}
