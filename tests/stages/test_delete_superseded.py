"""Old files that go after the outcome: many in one call where the store spares others', one by one where it does not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import StoreError, StoreOutcomeUnknownError, StorePermissionError, StoreUnavailableError
from committer.paths import StorePath
from committer.stores.base import Capabilities
from committer.stores.memory import MemorySpace, MemoryStore
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.neighbours.meeting import Party, Table

REPLACE = CommitterConfig(conflict_mode="replace", superseded_scope="destination")
OLD = {f"p={number % 7}/old-{number}": b"old %d" % number for number in range(25)}
NEW = {"p=0/new": b"new"}


def deletes(store: FaultyStore) -> dict[str, int]:
    """How many calls there were to delete old files, by operation."""
    old = [call for call in store.calls if "old-" in call.path.name]
    found = {name: sum(call.operation == name for call in old) for name in ("delete_files", "delete_file_if")}
    return {name: calls for name, calls in found.items() if calls}


async def replacing(old: Mapping[str, bytes] = OLD, **flags: int) -> tuple[Table, Party]:
    table = Table("s3", old, **flags)
    return table, await table.job("job", NEW, REPLACE)


@pytest.mark.parametrize(("most", "calls"), [(1000, 1), (25, 1), (24, 1), (10, 3), (6, 4)])
async def test_as_many_go_in_a_call_as_the_store_takes(most: int, calls: int) -> None:
    table, party = await replacing(max_batch_delete=most)
    await party.commit()
    assert table.files() == NEW
    # One that is left over goes by itself.
    alone = {"delete_file_if": 1} if len(OLD) % most == 1 else {}
    assert deletes(party.store) == {"delete_files": calls, **alone}


@pytest.mark.parametrize("profile", ["s3", "azure-flat"])
async def test_each_goes_by_itself_where_the_store_cannot(profile: str) -> None:
    flags = {"conditional_batch_delete": False} if profile == "s3" else {}
    table = Table(profile, OLD, **flags)
    party = await table.job("job", NEW, REPLACE)
    await party.commit()
    assert table.files() == NEW
    assert deletes(party.store) == {"delete_file_if": len(OLD)}


class Refusing(MemoryStore):
    """Says of names in a batch what a service may say inside an answer that is good."""

    def __init__(self, space: MemorySpace, errors: Mapping[str, type[StoreError]]) -> None:
        super().__init__(space.name)
        self.errors = dict(errors)

    async def delete_files(self, files: Mapping[StorePath, str | None]) -> Mapping[StorePath, StoreError]:
        refused = {path: self.errors[path.name] for path in files if path.name in self.errors}
        found = await super().delete_files({path: files[path] for path in files if path not in refused})
        return {**found, **{path: kind("no", operation="delete_files", path=path) for path, kind in refused.items()}}


async def test_what_a_call_did_not_delete_goes_by_itself() -> None:
    table, party = await replacing()
    kinds = (StoreOutcomeUnknownError, StoreUnavailableError, StorePermissionError, StoreError)
    errors = {f"old-{number}": kind for number, kind in enumerate(kinds, 1)}
    store = FaultyStore(Refusing(table.space, errors))
    driver = await committer.attach_job(party.driver.spec, storage_options={"store": store})
    await driver.commit()
    assert table.files() == NEW
    gone = [call.path.name for call in store.calls if call.operation == "delete_file_if" and "old-" in call.path.name]
    assert sorted(gone) == ["old-1", "old-2", "old-3", "old-4"]


@pytest.mark.parametrize("kind", ["unanswered", "lost", "unavailable", "throttled", "forbidden"])
async def test_where_the_call_keeps_failing_each_goes_by_itself(kind: str) -> None:
    table, party = await replacing()
    fault = Fault(kind=kind, operation="delete_files", times=None)  # type: ignore[arg-type]
    party.store.faults.append(fault)

    async def stop(call: Call) -> None:
        # What a cleanup deletes together is not what this is about.
        if call.operation == "delete_file_if" and "old-" in call.path.name:
            party.store.faults.clear()

    party.store.before_call = stop
    await party.commit()
    assert party.error is None
    assert table.files() == NEW
    assert deletes(party.store)["delete_file_if"] == len(OLD)


@pytest.mark.parametrize("kind", [None, "lost", "unanswered", "again", "late"])
@pytest.mark.parametrize("moment", [1, 2])
async def test_what_another_user_put_there_since_stays(kind: str | None, moment: int) -> None:
    """Before the call, or between that and the same one sent again."""
    table, party = await replacing()
    if kind:
        party.store.faults.append(Fault(kind=kind, operation="delete_files", times=1))  # type: ignore[arg-type]
    theirs = {"p=1/old-1": b"theirs", "p=2/old-2": b"theirs, too"}
    seen = 0

    async def put_theirs(call: Call) -> None:
        nonlocal seen
        if call.operation == "delete_files" and "old-" in call.path.name:
            seen += 1
            if seen == moment:
                for name, data in theirs.items():
                    table.write(name, data)

    party.store.before_call = put_theirs
    await party.commit()
    for late in list(party.store.under_way):
        await late
    sent = 2 if kind in ("lost", "unanswered", "late") else 1
    assert seen == sent
    assert table.files() == {**NEW, **(theirs if moment <= sent else {})}


@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
async def test_a_recoverer_deletes_what_is_left(kind: str) -> None:
    table, party = await replacing(max_batch_delete=5)
    party.store.faults.append(Fault(kind=kind, operation="delete_files", times=1))  # type: ignore[arg-type]
    with pytest.raises(SimulatedCrash):
        await party.commit()
    assert "_SUCCESS" not in table.all_files()
    table.write("p=3/old-3", b"of another user")
    report = await committer.recover(table.dest, "job", storage_options=table.options)
    assert report.success
    assert table.files() == {**NEW, "p=3/old-3": b"of another user"}
    assert table.temporary() == set()


class Unproved(MemoryStore):
    """Hears conditions of many only once it was probed, as a service that speaks like S3 may or may not."""

    probes = 0
    hears = True

    @property
    def capabilities(self) -> Capabilities:
        found = self._space.capabilities
        return msgspec.structs.replace(found, conditional_batch_delete=self.hears and self.probes > 0)

    async def probe(self, directory: StorePath) -> None:
        self.probes += 1


@pytest.mark.parametrize(("most", "hears"), [(10, True), (10, False), (100, True)])
async def test_a_recoverer_after_the_outcome_probes_where_that_pays(most: int, hears: bool) -> None:
    table, party = await replacing(max_batch_delete=most)
    party.store.faults.append(Fault(kind="crash_before", operation="delete_files", times=1))
    with pytest.raises(SimulatedCrash):
        await party.commit()
    store = Unproved(table.space.name)
    store.hears = hears
    watched = FaultyStore(store)
    await committer.recover(table.dest, "job", storage_options={"store": watched})
    assert table.files() == NEW
    pays = len(OLD) > most
    assert store.probes == pays
    assert deletes(watched) == ({"delete_files": 3} if pays and hears else {"delete_file_if": len(OLD)})
