"""Old files whose names are not UTF-8, which a local disk may hold: no record can name them, however many there are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from committer import CommitterConfig
from committer.errors import TargetExistsError
from committer.options.config import SupersededScope
from tests.engine.places import Place, make_place
from tests.few_facts import list_in_side_files

ODD = b"\xff-old"
NEW = {"a/new": b"new"}


def _write(tmp_path: Path, directory: bytes, names: list[bytes]) -> None:
    place = os.fsencode(tmp_path / "table") + b"/" + directory
    os.makedirs(place, exist_ok=True)
    for name in names:
        with open(place + b"/" + name, "wb") as file:
            file.write(b"old")


@pytest.fixture(params=["few", "many"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "many":
        # As where more than 50,000 old files go to the driver's disk.
        list_in_side_files(monkeypatch)
    return make_place("disk", tmp_path)


@pytest.mark.allow_blocking("it writes names that are no text")
@pytest.mark.parametrize("scope", ["directories", "partitions", "destination"])
@pytest.mark.parametrize("where", [b"a", b"a/\xfe"], ids=["the name of a file", "that of its directory, too"])
@pytest.mark.parametrize("odd", [1, 150])
async def test_a_job_that_replaces_them_is_refused(
    place: Place, tmp_path: Path, scope: SupersededScope, where: bytes, odd: int
) -> None:
    """Before anything changes, with an error that names the first; once they are gone the job can be committed."""
    names = [b"%s-%03d" % (ODD, number) for number in range(odd)]
    _write(tmp_path, b"a", [b"old-%d" % number for number in range(7)])
    _write(tmp_path, where, names)
    before = place.files()
    config = CommitterConfig(conflict_mode="replace", superseded_scope=scope)
    job = await place.open_job(job_id="j", config=config)
    await place.run_task(job, 0, NEW)
    with pytest.raises(TargetExistsError, match="its name is not UTF-8") as caught:
        await job.commit(tasks=1)
    assert caught.value.outcome == "unchanged"
    assert place.files() == before
    for name in names:
        os.unlink(os.fsencode(tmp_path / "table") + b"/" + where + b"/" + name)
    assert (await job.commit(tasks=1)).success
    assert place.files() == NEW
    assert place.temporary() == set()
    await job.close()
    await place.store.close()


@pytest.mark.allow_blocking("it writes names that are no text")
async def test_a_job_that_replaces_another_directory_leaves_them(place: Place, tmp_path: Path) -> None:
    _write(tmp_path, b"a", [b"old-%d" % number for number in range(7)])
    _write(tmp_path, b"b", [ODD])
    kept = {name: data for name, data in place.files().items() if name.startswith("b/")}
    await place.run_job(NEW, config=CommitterConfig(conflict_mode="replace"))
    assert place.files() == {**NEW, **kept}
    await place.store.close()
