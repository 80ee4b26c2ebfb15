"""The one checker of the guarantees: what a destination may hold, at every step of a job and when the job is over.

It knows what every task attempt wrote and how it ended, and what stood around before. It looks through a channel that
the engine has no part in: the tree of a memory space, or the disk itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Literal, TypeAlias

from committer.config import CommitterConfig
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore

Files: TypeAlias = Mapping[str, bytes]
Fate: TypeAlias = Literal["committed", "untouched", "unknown"]

TEMPORARY = "_temporary"
SUCCESS = "_SUCCESS"
OUT = "out"


class GuaranteeBrokenError(AssertionError):
    """A destination holds what it must not, or lacks what it must hold."""


class World(ABC):
    """A tree of files with a destination in it, seen past the store. Names are relative to its root."""

    @property
    @abstractmethod
    def destination(self) -> StorePath:
        """The directory that jobs write to."""

    @abstractmethod
    def store(self) -> Store:
        """A connection of a new process."""

    @abstractmethod
    def files(self, but: str | None = None) -> dict[str, bytes]:
        """Every file, but for those below one directory; then content may be told from what was read before."""

    @abstractmethod
    def directories(self) -> set[str]:
        """Every real directory."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Puts a file, with its directories."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Deletes a file."""

    @abstractmethod
    def forget(self) -> None:
        """Frees what it holds."""


class MemoryWorld(World):
    """A memory space of its own."""

    _numbers = count()

    def __init__(self, profile: str, **flags: bool) -> None:
        self._space = MemoryStore.space(f"guarantees-{next(self._numbers)}", profile, **flags)

    @property
    def destination(self) -> StorePath:
        return self._space.path(OUT)

    def store(self) -> Store:
        return self._space.store()

    def files(self, but: str | None = None) -> dict[str, bytes]:
        but = f"/{but}/" if but else "no path starts so"
        return {
            path.path[1:]: file.data
            for path, file in self._space.tree
            if file is not None and not path.path.startswith(but)
        }

    def directories(self) -> set[str]:
        return {path.path[1:] for path, file in self._space.tree if file is None}

    def write(self, name: str, data: bytes) -> None:
        self._space.write(f"/{name}", data)

    def remove(self, name: str) -> None:
        self._space.tree.delete_file(self._space.path(name))

    def forget(self) -> None:
        MemoryStore.forget(self._space.name)


class DiskWorld(World):
    """A directory of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._seen: dict[tuple[int, int, int], bytes] = {}

    @property
    def destination(self) -> StorePath:
        return StorePath.of(os.path.join(self._root, OUT))

    def store(self) -> Store:
        return LocalStore(threads=1)

    def files(self, but: str | None = None) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        pending = [""]
        while pending:
            directory = pending.pop()
            try:
                entries = list(os.scandir(os.path.join(self._root, directory)))
            except FileNotFoundError:
                continue
            for entry in entries:
                name = f"{directory}/{entry.name}" if directory else entry.name
                if name == but:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(name)
                else:
                    data = self._read(entry, again=but is None)
                    if data is not None:
                        found[name] = data
        return found

    def _read(self, entry: os.DirEntry[str], *, again: bool) -> bytes | None:
        try:
            status = entry.stat(follow_symlinks=False)
            key = status.st_ino, status.st_mtime_ns, status.st_size
            if again or key not in self._seen:
                with open(entry.path, "rb") as file:
                    self._seen[key] = file.read()
        except FileNotFoundError:
            return None
        return self._seen[key]

    def directories(self) -> set[str]:
        return {
            os.path.relpath(os.path.join(directory, name), self._root)
            for directory, below, _names in os.walk(self._root)
            for name in below
        }

    def write(self, name: str, data: bytes) -> None:
        path = os.path.join(self._root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def remove(self, name: str) -> None:
        os.unlink(os.path.join(self._root, name))

    def forget(self) -> None:
        return


@dataclass
class Attempt:
    """What one task attempt wrote, and how it ended as far as its engine knows."""

    task: int
    attempt: int
    files: dict[str, bytes]
    state: Literal["failed", "unknown", "committed"] = "failed"


@dataclass
class Ledger:
    """What every attempt of a job did, in the order they ended in."""

    tasks: int
    config: CommitterConfig
    attempts: list[Attempt] = field(default_factory=list)
    named: dict[int, int] | None = None

    def note(self, attempt: Attempt) -> None:
        """An attempt ended."""
        self.attempts.append(attempt)

    def may_win(self, task: int) -> list[Attempt]:
        """The attempts of a task whose output a commit may publish; the last of them always ended last."""
        found: list[Attempt] = []
        for attempt in self.attempts:
            if attempt.task != task or attempt.state == "failed":
                continue
            if self.named is not None:
                if self.named.get(task) == attempt.attempt:
                    found.append(attempt)
            elif attempt.state == "committed":
                # The later commit of a task replaces the earlier one's record.
                found = [attempt]
            else:
                found.append(attempt)
        return found


def digests(files: Files) -> dict[str, str]:
    """The content of each file, as a digest."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


class Checker:
    """Holds one job to its guarantees.

    Made before the job is set up, so that it sees what stood there.

    Args:
        world: The channel.
        ledger: What tasks did.
        job_id: The job.

    Attributes:
        late: Whether a request of a driver may have come after another driver rolled the job back: it can make an
            empty directory again, which nobody reads and nobody is left to remove.
    """

    def __init__(self, world: World, ledger: Ledger, job_id: str) -> None:
        self.late = False
        self.world = world
        self.ledger = ledger
        self.job_id = job_id
        self.steps = 0
        files = world.files()
        self._before = files
        self._before_directories = {name for name in world.directories() if name.startswith(f"{OUT}/")}
        self._own = f"{OUT}/{TEMPORARY}/{job_id}/"
        self._attempts = f"{self._own}00"
        self._decided = False
        self._complete = False
        self._last: dict[str, bytes] | None = None
        self.visible_before = _visible(files)
        self._neighbours = {
            name: data for name, data in files.items() if not name.startswith(f"{OUT}/") or _is_temporary(name)
        }

    def adopt(self, name: str, data: bytes) -> None:
        """Somebody else put a file at the destination, which must stay as he left it."""
        self.world.write(f"{OUT}/{name}", data)
        self.visible_before[name] = data

    # -- at every step --------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Checks what must hold at every moment."""
        files = self.world.files(but=self._attempts)
        if files == self._last:
            return
        self._last = files
        self.steps += 1
        self._check_neighbours(files)
        visible = _visible(files)
        if files.get(f"{self._own}decision", b"").find(b'"decision": "commit"') >= 0:
            self._decided = True
        if visible == self.visible_before and not self._complete:
            return
        if not self._decided:
            self._fail("G6: something changed at the destination before the job was decided", visible)
        complete = self._is_complete(visible)
        if _job_of(visible.get(SUCCESS)) == self.job_id and not complete:
            self._fail("G9: _SUCCESS stands and a file of a committed task does not", visible)
        self._complete = self._complete or (complete and _job_of(visible.get(SUCCESS)) == self.job_id)
        if self._complete and not complete:
            self._fail("G1: a committed job is no longer complete", visible)
        self._check_exclusive(visible)
        self._check_continuity(visible, complete=complete)

    def _check_neighbours(self, files: Files) -> None:
        for name, data in self._neighbours.items():
            if files.get(name) != data:
                self._fail(f"G10, G11: {name} belongs to somebody else and changed", files)
        for name in files:
            if name in self._neighbours or name.startswith(self._own):
                continue
            if not name.startswith(f"{OUT}/") or (_is_temporary(name) and not _is_lock(name)):
                self._fail(f"G10: {name} appeared outside the destination and the job's own directory", files)

    def _check_exclusive(self, visible: Files) -> None:
        allowed: dict[str, set[bytes]] = {}
        for task in range(self.ledger.tasks):
            for attempt in self.ledger.may_win(task):
                for name, data in attempt.files.items():
                    allowed.setdefault(name, set()).add(data)
        for name, data in visible.items():
            if name == SUCCESS:
                if data != self.visible_before.get(SUCCESS) and _job_of(data) != self.job_id:
                    self._fail("G9: somebody else's _SUCCESS appeared", visible)
            elif data != self.visible_before.get(name):
                if data not in allowed.get(name, ()):
                    self._fail(f"G2: {name} is of no attempt that may win", visible)
                if name in self.visible_before and not self._replaces():
                    self._fail(f"G14: {name} stood there and was overwritten", visible)

    def _check_continuity(self, visible: Files, *, complete: bool) -> None:
        targets = {name for attempt in self.ledger.attempts for name in attempt.files}
        in_the_way = self._in_the_way()
        for name in self.visible_before:
            if name in visible or name == SUCCESS or name in in_the_way:
                continue
            if name in targets:
                self._fail(f"G13: {name} is neither the old file nor the new one", visible)
            if not (complete and name in self._superseded()):
                self._fail(f"G13: {name} is gone and the new data is not complete", visible)

    def is_changed(self) -> bool:
        """Whether anything visible is not as it was before the job."""
        return _visible(self.world.files()) != self.visible_before

    def is_complete(self) -> bool:
        """Whether all of the job's output stands at the destination."""
        return self._is_complete(_visible(self.world.files()))

    def left_over(self) -> list[str]:
        """What stands of the job in `_temporary`."""
        names = (*self.world.files(), *self.world.directories())
        return sorted(name for name in names if f"{name}/".startswith(self._own))

    # -- at the end -----------------------------------------------------------------------------------------------

    def end(self, fate: Fate, *, left_over: bool = False, neat: bool = False) -> None:
        """Checks the end of the job.

        Args:
            fate: ``committed``: all of it and nothing else. ``untouched``: as before the job. ``unknown``: somebody
                must look, and nothing is lost and nothing too much.
            left_over: Whether the job's own directory may still stand.
            neat: Whether `_temporary` itself must be gone, as after a job that nothing disturbed.
        """
        self._last = None
        files = self.world.files()
        self._check_neighbours(files)
        visible = _visible(files)
        if fate == "unknown":
            self.step()
            self._check_nothing_lost(files)
            return
        if fate == "untouched":
            self._expect(visible, dict(self.visible_before), "G4: the job did not commit, and yet")
        else:
            self._check_committed(visible)
        if not self.late:
            self._check_directories(visible)
        if left_over:
            return
        standing = self.left_over()
        standing += [name for name in files if _is_lock(name) and name not in self._before]
        if neat and not any(map(_is_temporary, self._before)) and f"{OUT}/{TEMPORARY}" in self.world.directories():
            standing.append(f"{OUT}/{TEMPORARY}")
        if standing:
            self._fail(f"the job is over and left {standing[:5]}", files)

    def _check_committed(self, visible: dict[str, bytes]) -> None:
        gone = self._superseded() | self._in_the_way()
        expected = {name: data for name, data in self.visible_before.items() if name not in gone}
        for task in range(self.ledger.tasks):
            winner = self._winner(task, visible)
            if winner is None:
                self._fail(f"G1: not all files of task {task} are in place", visible)
            expected.update(winner.files)
        expected.pop(SUCCESS, None)
        found = dict(visible)
        marker = found.pop(SUCCESS, None)
        if self.ledger.config.mark_successful_jobs:
            if _job_of(marker) != self.job_id:
                self._fail("G9: the job committed and _SUCCESS does not say so", visible)
        elif marker != self.visible_before.get(SUCCESS):
            self._fail("G9: the job writes no _SUCCESS and changed it", visible)
        self._expect(found, expected, "G1, G2: the job committed, and yet")

    def _check_nothing_lost(self, files: Files) -> None:
        everything = set(files.values())
        for task in range(self.ledger.tasks):
            if not any(set(attempt.files.values()) <= everything for attempt in self.ledger.may_win(task)):
                self._fail(f"G8: files of task {task} are lost", files)
        new: dict[str, bytes] = {}
        for task in range(self.ledger.tasks):
            for attempt in self.ledger.may_win(task):
                new.update(attempt.files)
        for name, data in self.visible_before.items():
            if data not in everything and files.get(f"{OUT}/{name}") != new.get(name, b""):
                self._fail(f"G8: {name} is lost", files)

    def _check_directories(self, visible: Files) -> None:
        if not self.world.store().capabilities.directories:
            return
        found = {
            name for name in self.world.directories() if name.startswith(f"{OUT}/") and not _is_temporary(f"{name}/")
        }
        needed = set()
        for name in visible:
            parts = name.split("/")[:-1]
            needed.update(f"{OUT}/{'/'.join(parts[:depth])}" for depth in range(1, len(parts) + 1))
        extra = found - needed - self._before_directories
        gone = self._superseded() | (self._in_the_way() if visible != self.visible_before else set())
        missing = self._before_directories - found if not gone else set()
        missing = {name for name in missing if not _is_temporary(f"{name}/")}
        if extra or missing:
            self._fail(f"directories too many {sorted(extra)}, too few {sorted(missing)}", visible)

    # -- what it rests on -----------------------------------------------------------------------------------------

    def _replaces(self) -> bool:
        return self.ledger.config.existing_target == "replace" or self.ledger.config.conflict_mode == "replace"

    def _superseded(self) -> set[str]:
        """Old files that the job takes away."""
        if self.ledger.config.conflict_mode != "replace":
            return set()
        old = {name for name in self.visible_before if not _is_hidden(name)}
        if self.ledger.config.superseded_scope == "destination":
            return old
        written = {name.rpartition("/")[0] for attempt in self.ledger.attempts for name in attempt.files}
        return {name for name in old if any(not where or name.startswith(f"{where}/") for where in written)}

    def _in_the_way(self) -> set[str]:
        """Old files that cannot stand beside the new ones: below a file's name, or where a directory goes."""
        targets = {name for attempt in self.ledger.attempts for name in attempt.files}
        return {
            old
            for old in self.visible_before
            if any(old.startswith(f"{name}/") or name.startswith(f"{old}/") for name in targets)
        }

    def _winner(self, task: int, visible: Files) -> Attempt | None:
        for attempt in self.ledger.may_win(task):
            if all(visible.get(name) == data for name, data in attempt.files.items()):
                return attempt
        return None

    def _is_complete(self, visible: Files) -> bool:
        return all(self._winner(task, visible) is not None for task in range(self.ledger.tasks))

    def _expect(self, found: dict[str, bytes], expected: dict[str, bytes], what: str) -> None:
        if digests(found) == digests(expected):
            return
        missing = sorted(expected.keys() - found.keys())
        extra = sorted(found.keys() - expected.keys())
        other = sorted(name for name in found.keys() & expected.keys() if found[name] != expected[name])
        self._fail(f"{what} missing {missing}, extra {extra}, other content {other}", found)

    def _fail(self, what: str, files: Files) -> None:
        raise GuaranteeBrokenError(f"{what}\nstanding: {sorted(files)}")


def _visible(files: Files) -> dict[str, bytes]:
    return {
        name[len(OUT) + 1 :]: data
        for name, data in files.items()
        if name.startswith(f"{OUT}/") and not _is_temporary(name)
    }


def _is_temporary(name: str) -> bool:
    return name.startswith(f"{OUT}/{TEMPORARY}/")


def _is_lock(name: str) -> bool:
    return name.startswith(f"{OUT}/{TEMPORARY}/.replace-lock")


def _is_hidden(name: str) -> bool:
    return name[0] in "_." and "=" not in name.partition("/")[0]


@lru_cache(maxsize=64)
def _job_of(marker: bytes | None) -> str | None:
    if not marker:
        return None
    try:
        return str(json.loads(marker)["jobId"])
    except (ValueError, KeyError):
        return None
