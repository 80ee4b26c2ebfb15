"""The driver's directory for temporary files is full: what a job says, what it changed, and that it goes on with room."""

from __future__ import annotations

import errno
import os
import tempfile
from functools import partial
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, MultipleError
from committer.flow import spill, texts
from committer.flow.spill import SpillFile
from committer.flow.texts import Repeats
from committer.stages import facts as noted_facts
from committer.testing.faults import Call
from tests.few_facts import list_in_side_files
from tests.neighbours.meeting import Table

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")

OLD = {f"p={number % 3}/old-{number}": b"old" for number in range(9)}
NEW = {f"p={number}/new": b"new" for number in range(5)}
REPLACE = CommitterConfig(conflict_mode="replace", superseded_scope="destination")


class Disk:
    """Where temporary files go. A full one takes no byte: its files are /dev/full.

    Attributes:
        full: Whether it is, from now on.
        refused: How many files were begun on it while it was full.
    """

    def __init__(self) -> None:
        self.full: bool = False
        self.refused: int = 0

    def file(self, **arguments: Any) -> BinaryIO:
        if not self.full:
            return cast("BinaryIO", tempfile.TemporaryFile(**arguments))
        self.refused += 1
        return open("/dev/full", "r+b", buffering=0)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Limits so low that a handful of files goes to it, and every block at once."""
    disk = Disk()
    fakes = SimpleNamespace(TemporaryFile=disk.file, gettempdir=tempfile.gettempdir)
    monkeypatch.setattr(spill, "tempfile", fakes)
    list_in_side_files(monkeypatch)
    monkeypatch.setattr(noted_facts, "SpillFile", partial(SpillFile, block_bytes=1))
    return disk


def check_told(error: CommitterError, outcome: str) -> None:
    # Several directories may be listed at once, and each of them fail.
    first = error.causes[0] if isinstance(error, MultipleError) else error
    assert isinstance(first, CommitterError)
    assert isinstance(first.__cause__, OSError)
    assert (first.operation, error.outcome) == ("spill", outcome)
    assert f"a temporary file in {tempfile.gettempdir()} failed: [Errno {errno.ENOSPC}]" in error.message
    assert "set TMPDIR to a directory with room" in error.next_step


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3", "azure-flat"])
async def test_old_files_that_are_noted_before_the_decision(profile: str, disk: Disk) -> None:
    table = Table(profile, OLD)
    party = await table.job("job", NEW, REPLACE)
    disk.full = True
    await party.commit()
    assert party.error is not None
    check_told(party.error, "unchanged")
    assert disk.refused
    assert table.files() == OLD
    assert not [call for call in party.store.calls if call.path.name == "decision" and call.operation == "put"]
    # Nothing of it stands in the way of another job, or of the same one.
    other = await table.job("other", {"q=1/other": b"other"})
    await other.commit()
    assert other.error is None
    table.remove("q=1/other")
    disk.full = False
    await party.commit()
    assert party.error is None
    assert table.files() == NEW


@pytest.mark.parametrize("profile", ["local", "gcs", "s3"])
async def test_names_compared_before_the_decision(profile: str, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Repeats.__init__
    monkeypatch.setattr(Repeats, "__init__", lambda self, **_more: make(self, block=2))
    monkeypatch.setattr(texts, "_BLOCK_BYTES", 1)
    table = Table(profile)
    party = await table.job("job", NEW)
    disk.full = True
    await party.commit()
    assert party.error is not None
    check_told(party.error, "unchanged")
    assert table.files() == {}
    disk.full = False
    await party.commit()
    assert party.error is None
    assert table.files() == NEW


async def test_old_files_that_are_kept_after_the_decision(disk: Disk) -> None:
    """Where no fence keeps a driver's late moves out it keeps their list: without, it moves nothing."""
    table = Table("gcs", OLD)
    party = await table.job("job", NEW, REPLACE)

    async def fill(call: Call) -> None:
        if call.operation == "put" and call.path.name == "decision":
            disk.full = True

    party.store.before_call = fill
    await party.commit()
    assert party.error is not None
    assert disk.refused
    check_told(party.error, "partial")
    assert "with room, then call `await committer.recover(" in party.error.next_step
    assert OLD.items() <= table.files().items()
    with pytest.raises(CommitterError):
        await committer.recover(table.dest, "job", storage_options=table.options)
    assert OLD.items() <= table.files().items()
    disk.full = False
    assert (await committer.recover(table.dest, "job", storage_options=table.options)).success
    assert table.files() == NEW
    assert table.temporary() == set()
