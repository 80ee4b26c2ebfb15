"""Old files by the million stand in side files of the decision, a few at a time: the same ends after every fault.

The limits are so low here that a handful of old files takes the ways of millions: found facts go to the driver's disk,
the decision names a side file for every two of them, and who moves, deletes or puts them back reads these.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from committer.records.manifest import TaskManifest
from committer.stages.check import in_the_way
from committer.stages.load import load_records, manifest_forms
from committer_testing.simulate.worlds import FENCING
from tests.few_facts import list_in_side_files
from tests.guarantees.conftest import Tally
from tests.guarantees.sweeps import MEMORY, SMALL, disk, memory, plan_of, sweep
from tests.guarantees.test_endings import dying_in_turn, then_rolled_back
from tests.guarantees.test_faults import ON_DISK, then_recovered

REPLACING = ["replace", "replace-same-names", "replace-all"]


@pytest.fixture(autouse=True)
def _low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    list_in_side_files(monkeypatch)


@pytest.mark.parametrize("situation", REPLACING)
@pytest.mark.parametrize("kind", MEMORY)
async def test_recovery_after_a_fault_at_every_call(situation: str, kind: str, tally: Tally) -> None:
    plan = plan_of(situation, delivery="message", **SMALL)
    await sweep(memory(kind), plan, ("lost", "crash_before"), then_recovered, tally, commit_only=True)


@pytest.mark.parametrize("situation", REPLACING)
@pytest.mark.parametrize("kind", MEMORY)
async def test_rollback_after_a_crash_at_every_call(situation: str, kind: str, tally: Tally) -> None:
    plan = plan_of(situation, delivery="message", **SMALL)
    await sweep(memory(kind), plan, ("crash_after",), then_rolled_back, tally, commit_only=True)


@pytest.mark.parametrize("rollback", [False, True], ids=["recover", "rollback"])
async def test_death_of_who_recovers(rollback: bool, tally: Tally) -> None:
    for number, at in enumerate((6, 12, 18, 24)):
        plan = plan_of("replace-all", delivery="message", **SMALL)
        ordeal = dying_in_turn(at, rollback=rollback, died=set())
        await sweep(memory(FENCING[number % 3]), plan, ("crash_before",), ordeal, tally, commit_only=True)


@pytest.fixture(params=["entries", "hashes"])
def _targets_on_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver keeps facts about existing targets on its disk, for jobs with entries in memory and with hashes only."""
    monkeypatch.setattr(in_the_way, "STANDING_IN_MEMORY", 1)
    if request.param == "hashes":
        monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", 1)


@pytest.mark.usefixtures("_targets_on_disk")
@pytest.mark.parametrize("situation", ["same-names", "replace-same-names", "replace-elsewhere"])
@pytest.mark.parametrize("kind", MEMORY)
async def test_files_replaced_under_their_own_names(situation: str, kind: str, tally: Tally) -> None:
    for trouble, ordeal in (
        ("lost", then_recovered),
        ("crash_before", then_recovered),
        ("crash_after", then_rolled_back),
    ):
        plan = plan_of(situation, delivery="message", **SMALL)
        await sweep(memory(kind), plan, (trouble,), ordeal, tally, commit_only=True)


@pytest.mark.usefixtures("_targets_on_disk")
@ON_DISK
async def test_files_replaced_under_their_own_names_on_a_local_disk(tmp_path: Path, tally: Tally) -> None:
    plan = plan_of("replace-same-names", delivery="message", **SMALL)
    for name in ("forward", "back"):
        (tmp_path / name).mkdir()
    await sweep(disk(tmp_path / "forward"), plan, ("crash_before",), then_recovered, tally, commit_only=True)
    await sweep(disk(tmp_path / "back"), plan, ("crash_after",), then_rolled_back, tally, commit_only=True)


@pytest.fixture
def _without_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks' records say nothing of what files are known by, as Java's on a local disk, and no entry is kept."""
    encode = manifest_forms.encode_task_manifest

    def encode_without(manifest: TaskManifest) -> bytes:
        files = [msgspec.structs.replace(file, e=None, v=None) for file in manifest.files]
        return encode(msgspec.structs.replace(manifest, files=files))

    monkeypatch.setattr(manifest_forms, "encode_task_manifest", encode_without)
    monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", 1)


@pytest.mark.usefixtures("_without_identities")
@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("situation", ["append", "replace-same-names"])
@pytest.mark.parametrize("kind", [kind for kind in FENCING if kind != "no-identity"])
async def test_identities_that_no_record_holds(situation: str, kind: str, delivery: str, tally: Tally) -> None:
    plan = plan_of(situation, delivery=delivery, **SMALL)
    await sweep(memory(kind), plan, ("crash_before",), then_recovered, tally, commit_only=True)
    await sweep(memory(kind), plan, ("crash_after",), then_rolled_back, tally, commit_only=True)


@ON_DISK
async def test_recovery_on_a_local_disk(tmp_path: Path, tally: Tally) -> None:
    plan = plan_of("replace-all", delivery="message", **SMALL)
    await sweep(disk(tmp_path), plan, ("crash_before",), then_recovered, tally, commit_only=True)
