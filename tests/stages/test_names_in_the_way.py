"""Existing targets of a large job are found by hashes of its names, as by the names themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

from committer import CommitterConfig
from committer.errors import TargetExistsError
from committer.flow.texts import Repeats
from committer.records.job_state import Decision, Fact, encode_record
from committer.stages.check import in_the_way
from committer.stages.decide import decide
from committer.stages.load import load_records
from tests.places import PROFILES, Place, make_place, place_fixture

place = place_fixture(*PROFILES, "s3")
NEW = {"a": b"new a", "p=1/b": b"new b", "p=2/c": b"new c", "p=2/d": b"new d"}


@pytest.fixture(params=["names", "hashes", "names, found on disk", "hashes, found on disk"], autouse=True)
def _what_is_kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "hashes" in request.param:
        monkeypatch.setattr(load_records, "ENTRIES_IN_MEMORY", 1)
    if "on disk" in request.param:
        monkeypatch.setattr(in_the_way, "STANDING_IN_MEMORY", 0)


@pytest.mark.parametrize("mode", ["append", "replace"])
async def test_a_file_at_a_new_ones_name_is_refused(place: Place, mode: str) -> None:
    await place.run_job({"p=2/c": b"old c", "p=1/other": b"old"}, job_id="before")
    before = place.files()
    config = CommitterConfig(conflict_mode=mode, superseded_directories=("p=1",) if mode == "replace" else ())
    with pytest.raises(TargetExistsError, match="p=2/c") as caught:
        await place.run_job(NEW, job_id="J", config=config)
    assert caught.value.conflicts == ("a file exists at p=2/c, where a file goes",)
    assert place.files() == before


@pytest.mark.parametrize("scope", ["directories", "destination"])
async def test_old_files_make_room_some_under_the_same_names(place: Place, scope: str) -> None:
    old = {"a": b"old a", "p=2/c": b"old c", "p=1/other": b"old", "p=1/deep/e": b"old e", "p=3/f": b"old f"}
    await place.run_job(old, job_id="before")
    config = CommitterConfig(conflict_mode="replace", superseded_scope=scope)
    await place.run_job(NEW, job_id="J", config=config)
    assert place.files() == NEW
    assert not place.temporary()


@pytest.mark.parametrize("mode", ["append", "replace"])
async def test_files_make_room_for_others_of_their_names(place: Place, mode: str) -> None:
    old = {"a": b"old a", "p=1/b": b"old b", "p=2/c": b"old c", "p=2/other": b"old"}
    await place.run_job(old, job_id="before")
    config = CommitterConfig(conflict_mode=mode, existing_target="replace")
    await place.run_job(NEW, job_id="J", config=config)
    assert place.files() == (NEW if mode == "replace" else {**old, **NEW})
    assert not place.temporary()


async def test_a_directory_at_a_new_files_name_is_refused_beside_files(place: Place) -> None:
    await place.run_job({"p=2/c/below": b"old", "p=2/d": b"old d", "a": b"old a"}, job_id="before")
    before = place.files()
    with pytest.raises(TargetExistsError) as caught:
        await place.run_job(NEW, job_id="J")
    assert caught.value.conflicts == (
        "a file exists at a, where a file goes",
        "a directory exists at p=2/c, where a file goes",
        "a file exists at p=2/d, where a file goes",
    )
    assert place.files() == before
    await place.run_job(NEW, job_id="K", config=CommitterConfig(existing_target="replace"))
    assert place.files() == NEW
    assert not place.temporary()


@pytest.mark.parametrize("mode", ["append", "replace"])
async def test_names_beside_them_that_are_not_utf_8(
    mode: Literal["append", "replace"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter of hashes takes some of them for names of new files, and those that stay are asked for."""
    monkeypatch.setitem(Repeats.common.__kwdefaults__, "kept", 0)
    place, new = make_place("disk", tmp_path), {f"a/{number}": b"new" for number in range(40)}
    for name in new:
        place.write(name, b"old")
    for number in range(40):
        (tmp_path / "table" / os.fsdecode(b"a/\xff%d" % number)).write_bytes(b"odd")
    before = place.files()
    config = CommitterConfig(conflict_mode=mode, existing_target="replace")
    if mode == "append":
        await place.run_job(new, config=config)
    else:
        # Has the names of old files compared also where entries are kept.
        place.write("a/d", b"exists where a directory goes")
        with pytest.raises(TargetExistsError, match="not UTF-8"):
            await place.run_job({**new, "a/d/below": b"new"}, config=config)
    assert place.files() == ({**before, **new} if mode == "append" else {**before, "a/d": place.read("a/d")})
    assert not place.temporary()
    await place.store.close()


@pytest.mark.parametrize("kind", ["gcs", "s3"])
async def test_each_old_file_has_a_place_of_its_own(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[Fact] = []

    def look(record: Decision) -> bytes:
        decided.extend(record.facts)
        return encode_record(record)

    monkeypatch.setattr(decide, "encode_record", look)
    place = make_place(kind, None)
    await place.run_job({"p=2/c/below": b"old", "p=2/d": b"old d", "a": b"old a"}, job_id="before")
    config = CommitterConfig(existing_target="replace")
    job = await place.open_job(job_id="J", config=config)
    await place.run_task(job, 0, NEW)
    assert (await job.plan()).replaced == ["a", "p=2/c/below", "p=2/d"]
    await job.commit(tasks=1)
    assert sorted(fact.aside for fact in decided if fact.kind != "directory") == [0, 1, 2]
    assert place.files() == NEW
