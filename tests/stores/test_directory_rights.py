"""Whether a directory on a local disk has all that one which this process makes would have, and nothing else."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from committer.paths import StorePath
from committer.stores.abilities import LOCAL_PATHS
from committer.stores.local import LocalStore

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells a umask without setting it"
)

ROOT = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def umask() -> Iterator[None]:
    """Not the usual one: what is told must be this process's."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def set_acl(path: Path, kind: str) -> None:
    """An access list as setfacl(1) writes it: owner, group, one user by number, the most they may, others.

    Without the user it says what the mode says, and Linux keeps none.
    """
    no_id = 0xFFFFFFFF
    entries = ((1, 7, no_id), (2, 5, 12345), (4, 5, no_id), (0x10, 5, no_id), (0x20, 5, no_id))
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, f"system.posix_acl_{kind}", data)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A directory that this process made in `tmp_path`."""
    mine = tmp_path / "mine"
    mine.mkdir()
    return mine


async def alike(store: LocalStore, directory: Path, parent: Path) -> bool:
    able = LOCAL_PATHS.required(store, "made_alike")
    [answer] = await able.made_alike([(StorePath.of(directory), StorePath.of(parent))])
    made = parent / "made"
    if answer:
        # What is said must be so.
        os.mkdir(made)
        told, other = os.lstat(directory), os.lstat(made)
        assert (told.st_mode, told.st_uid, told.st_gid) == (other.st_mode, other.st_uid, other.st_gid)
        assert sorted(os.listxattr(directory)) == sorted(os.listxattr(made))
        os.rmdir(made)
    return answer


@pytest.mark.usefixtures("umask")
async def test_a_directory_of_this_process_is_alike(local: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary/mine").mkdir()
    assert await alike(local, tmp_path / "_temporary/mine", tmp_path / "there")


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mode", [0o755, 0o700, 0o770, 0o2750, 0o1750])
async def test_another_mode_is_not(local: LocalStore, mine: Path, tmp_path: Path, mode: int) -> None:
    assert await alike(local, mine, tmp_path)
    mine.chmod(mode)
    assert not await alike(local, mine, tmp_path)


@ROOT
@pytest.mark.parametrize(("user", "group"), [(7, 0), (0, 7)])
async def test_another_owner_or_group_is_not(
    local: LocalStore, mine: Path, tmp_path: Path, user: int, group: int
) -> None:
    os.chown(mine, user, group)
    assert not await alike(local, mine, tmp_path)


@ROOT
async def test_the_group_that_a_parent_hands_down_counts(local: LocalStore, tmp_path: Path) -> None:
    plain, setgid = tmp_path / "plain", tmp_path / "setgid"
    for parent in (plain, setgid):
        parent.mkdir()
        os.chown(parent, 0, 7)
    setgid.chmod(0o2770)
    for parent in (plain, setgid):
        (parent / "mine").mkdir()
    assert await alike(local, setgid / "mine", setgid)
    assert not await alike(local, plain / "mine", setgid)
    assert not await alike(local, setgid / "mine", tmp_path)
    # A disk that is mounted so hands it down without the bit, which nothing that is looked at tells.
    assert not await alike(local, plain / "mine", plain)


@pytest.mark.parametrize("kind", ["default", "access"])
async def test_a_directory_with_an_access_list_is_not(local: LocalStore, mine: Path, tmp_path: Path, kind: str) -> None:
    set_acl(mine, kind)
    assert f"system.posix_acl_{kind}" in os.listxattr(mine)
    assert not await alike(local, mine, tmp_path)


async def test_a_parent_with_a_default_access_list_is_left_alone(local: LocalStore, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    set_acl(there, "default")
    for mine in (tmp_path / "mine", there / "mine"):
        mine.mkdir()
        assert not await alike(local, mine, there)


async def test_an_attribute_makes_a_difference(local: LocalStore, mine: Path, tmp_path: Path) -> None:
    try:
        os.setxattr(mine, "user.note", b"x")
    except OSError as error:
        pytest.skip(f"no attributes here: {error}")
    assert not await alike(local, mine, tmp_path)


@pytest.mark.parametrize("what", ["nothing", "a file", "a link"])
async def test_what_is_no_directory_is_not_alike(local: LocalStore, tmp_path: Path, what: str) -> None:
    other, there = tmp_path / "other", tmp_path / "there"
    there.mkdir()
    if what == "a file":
        other.write_bytes(b"")
    elif what == "a link":
        other.symlink_to(there)
    assert not await alike(local, other, there)
    if what != "a link":
        assert not await alike(local, there, other)


async def test_many_are_told_apart_in_one_call(local: LocalStore, tmp_path: Path) -> None:
    pairs = []
    for number in range(50):
        directory = tmp_path / f"_temporary/t{number}/p"
        directory.mkdir(parents=True)
        if number % 7 == 0:
            directory.chmod(0o700)
        pairs.append((StorePath.of(directory), StorePath.of(tmp_path)))
    assert list(await local.made_alike(pairs)) == [number % 7 != 0 for number in range(50)]


async def test_where_a_umask_is_not_told_nothing_is(
    local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("committer.stores.local.disk.umask_of_process", lambda: None)
    (tmp_path / "mine").mkdir()
    assert not await alike(local, tmp_path / "mine", tmp_path)
