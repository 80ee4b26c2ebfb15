"""Another user, who may write into a job's directories, and puts a link in the place of one."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Final

from tests.disk_sweep.account import Tree, Wrong
from tests.disk_sweep.meaning import Operation

PRECIOUS: Final = "precious"
# What a follower would look for, or sweep away.
_EXPECTED: Final = ("setup", "decision", "precious", "00/tasks/x/precious", "00000000")


def places(operation: Operation, table: str) -> list[str]:
    """The job's directories on the way to what a store call is about, and what it is about itself, once each."""
    found: list[str] = []
    # Of a batch, its first rename and its last.
    for path in dict.fromkeys([*operation.paths[:2], *operation.paths[-2:]]):
        names = os.path.relpath(path, table).split("/")
        if names[0] != "_temporary":
            continue
        found += ["/".join([table, *names[: depth + 1]]) for depth in range(len(names))]
    return list(dict.fromkeys(found))


def most_places(meaning: str) -> int:
    """How many places a store call has, at most, told from what it means; of a batch the second pair is told apart."""
    paths = meaning.split(" ")[1:]
    depths = [path.count("/") for path in paths if path.startswith("/_temporary")]
    return sum(depths)


class Intruder:
    """Plants one link; where it leads, all is precious.

    Args:
        outside: A directory of the same disk that is no job's.
    """

    def __init__(self, outside: str, table: str) -> None:
        self._outside = outside
        self._table = table
        self._note = os.path.join(outside, "planted-at")
        self._decoy = os.path.join(outside, "decoy")
        self._hidden = os.path.join(outside, "hidden")

    def plant(self, number: int, operation: Operation) -> None:
        """Moves what exists at the place of that number away, and puts a link there to something that looks like it."""
        found = places(operation, self._table)
        if number >= len(found) or not os.path.isdir(os.path.dirname(found[number])):
            return
        place = found[number]
        os.mkdir(self._outside)
        stood = os.path.lexists(place)
        if stood:
            os.rename(place, self._hidden)
        if stood and not os.path.isdir(self._hidden):
            Path(self._decoy).write_text(PRECIOUS)
        else:
            self._make_decoy()
        os.symlink(self._decoy, place)
        Path(self._note).write_text(f"{place}\n{self._tell()}")

    def _make_decoy(self) -> None:
        os.mkdir(self._decoy)
        for top, directories, names in os.walk(self._hidden):
            below = os.path.join(self._decoy, os.path.relpath(top, self._hidden))
            for name in directories:
                os.mkdir(os.path.join(below, name))
            for name in names:
                Path(below, name).write_text(PRECIOUS)
        for name in _EXPECTED:
            path = Path(self._decoy, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text(PRECIOUS)

    def _tell(self) -> str:
        """Every bit of the decoy."""
        paths = [self._decoy]
        for top, directories, names in os.walk(self._decoy):
            paths += [os.path.join(top, name) for name in (*directories, *names)]
        told = []
        for path in sorted(paths):
            own = os.lstat(path)
            told.append(f"{path} {own.st_ino} {own.st_mode} {own.st_nlink} {own.st_mtime_ns} {own.st_ctime_ns}")
        return "\n".join(told)

    @property
    def came(self) -> bool:
        """Whether a link was planted."""
        return os.path.exists(self._note)

    def touched(self) -> bool:
        """Whether anything of the decoy is not as it was."""
        return Path(self._note).read_text().partition("\n")[2] != self._tell()

    def check_nothing_lost(self, tree: Tree, *, but: int) -> None:
        """Checks that every file which a rename took through the link is at the destination or still outside, unread.

        Directories whose files the same rename took may be gone: those files are published, and cleanup removes what is
        empty then.

        Args:
            tree: What is at the destination.
            but: So many files may be gone.

        Raises:
            Wrong: Something was.
        """
        before = [line.split(" ") for line in Path(self._note).read_text().splitlines()[1:]]
        files = {parts[0] for parts in before if not stat.S_ISDIR(int(parts[-4]))}
        holding = {str(above) for file in files for above in Path(file).parents}
        inodes = {parts[-5] for parts in before if parts[0] not in holding}
        now = set()
        for root in (self._decoy, self._hidden, self._table):
            for top, directories, names in os.walk(root):
                now |= {str(os.lstat(os.path.join(top, name)).st_ino) for name in (".", *directories, *names)}
        if os.path.lexists(self._decoy):
            now.add(str(os.lstat(self._decoy).st_ino))
        if len(inodes - now) > but:
            raise Wrong(f"something outside was deleted through the link ({len(inodes - now)} of {len(inodes)})")
        found = {name: os.path.join(self._table, name) for name, text in tree.items() if text == PRECIOUS}
        taken = [
            name
            for name, path in found.items()
            if not os.path.islink(path) and str(os.lstat(path).st_ino) not in inodes
        ]
        if taken:
            raise Wrong(f"what was outside was read into {taken}")

    def links(self) -> list[str]:
        """Where links to the decoy are now: a rename may have taken one along, or to the destination."""
        return [
            os.path.join(top, name)
            for top, directories, names in os.walk(self._table)
            for name in (*directories, *names)
            if os.path.islink(os.path.join(top, name))
        ]

    def is_published(self) -> bool:
        """Whether the link itself is at the destination."""
        working = os.path.join(self._table, "_temporary")
        return any(link != working and not link.startswith(f"{working}/") for link in self.links())

    def undo(self) -> None:
        """What the error advises, by an administrator who knows where the directory went."""
        for place in self.links():
            os.unlink(place)
            if os.path.lexists(self._hidden):
                os.rename(self._hidden, place)
        shutil.rmtree(self._outside, ignore_errors=True)
