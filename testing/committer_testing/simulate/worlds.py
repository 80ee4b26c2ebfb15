"""Trees of files with a destination in them, seen past the store: a memory space, or a directory of this machine."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path

from committer.errors import StoreError
from committer.layout import DirectoryName
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.stores.memory.tree import File

TEMPORARY = "_temporary"
MAGIC = "__magic_job-"
OUT = "out"
# Beside the destination: where jobs may be let publish files by absolute paths.
ELSEWHERE = "elsewhere"

_OUT_LENGTH = len(f"/{OUT}/")
_TEMPORARY = (f"/{OUT}/{TEMPORARY}/", f"/{OUT}/{MAGIC}")
_ELSEWHERE = f"/{ELSEWHERE}/"
_VISIBLE = (f"/{OUT}/", _ELSEWHERE)

_APPLICATION_ATTEMPT = re.compile(rf"/?{OUT}/{TEMPORARY}/\d+(?:/{TEMPORARY})?(?:/(?:task|attempt)_(.+?)_m_.*)?")


def places_of(job_id: str) -> tuple[str, ...]:
    """Returns the path prefixes of what jobs of this id keep for themselves, whatever their setup."""
    return tuple(f"{OUT}/{above}{job_id}{end}" for above in (f"{TEMPORARY}/", MAGIC) for end in ("~", "/"))


def directory_of(job_id: str, setup: str) -> str:
    """Returns the path prefix of a job's directory; that of a job of Hadoop's has no setup."""
    return f"{OUT}/{TEMPORARY}/{job_id}~{setup}/" if setup else f"{OUT}/{TEMPORARY}/{job_id}/"


def is_of_application_attempt(path: str, job_id: str) -> bool:
    """Whether that is a directory that jobs of FileOutputCommitter share, or what one job has there."""
    found = _APPLICATION_ATTEMPT.fullmatch(path)
    return found is not None and found[1] in (None, job_id)


def setups_of_directories(paths: Iterable[str]) -> dict[str, set[str]]:
    """Returns the setups of each job id that have a directory among paths, of which most lie below few directories."""
    above = f"{OUT}/{TEMPORARY}/"
    names = {path[len(above) :].partition("/")[0] for path in paths if path.startswith(above)}
    found: dict[str, set[str]] = {}
    for name in map(DirectoryName.of, names):
        if not name.suffix:
            found.setdefault(name.job_id, set()).add(name.setup)
    return found


class World(ABC):
    """A tree of files with a destination in it, seen past the store. Names are relative to its root.

    What readers see is named as jobs name it: relative to the destination, or by an absolute path below `ELSEWHERE`.
    """

    @property
    def elsewhere(self) -> StorePath:
        """The directory outside the destination that jobs may be let write to."""
        return self.destination.parent / ELSEWHERE

    def name_of(self, visible: str) -> str:
        """The name, relative to the root, of what readers see under another."""
        if not visible.startswith("/"):
            return f"{OUT}/{visible}"
        return visible.removeprefix(self.elsewhere.parent.path.rstrip("/") + "/")

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
    def visible(self) -> Mapping[str, bytes]:
        """What readers see at the destination but below its `_temporary` and `__magic_job-`, and below `ELSEWHERE`."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """One file; None when there is none."""

    @abstractmethod
    def directories(self) -> set[str]:
        """Every real directory."""

    @abstractmethod
    def setups_of(self, job_id: str) -> set[str]:
        """The setups of an id that have a directory; empty stands for a job of Hadoop's."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Puts a file, with its directories."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Deletes a file."""

    def pending(self) -> set[str]:
        """Every upload that has a part and was neither completed nor aborted; none where there are no uploads."""
        return set()

    def dropped(self, name: str) -> Sequence[bytes]:
        """The blocks that waited under a name when `write` put a file there, which dropped them."""
        return ()

    def begin_upload(self, name: str) -> None:
        """Another user begins an upload, where there are any, and leaves it at that."""
        return

    @abstractmethod
    def forget(self) -> None:
        """Frees what it holds."""


class MemoryWorld(World):
    """A memory space of its own."""

    _numbers = count()

    def __init__(self, profile: str, **flags: bool) -> None:
        self._space = MemoryStore.space(f"guarantees-{next(self._numbers)}", profile, **flags)
        self._seen: tuple[int, Mapping[str, bytes]] | None = None
        self._setups: tuple[int, dict[str, set[str]]] | None = None
        self._dropped: dict[str, list[bytes]] = {}

    @property
    def destination(self) -> StorePath:
        """See `World.destination`."""
        return self._space.path(OUT)

    def store(self) -> Store:
        """See `World.store`."""
        return self._space.store()

    def files(self, but: str | None = None) -> dict[str, bytes]:
        """See `World.files`."""
        but = f"/{but}/" if but else "no path starts so"
        return {
            path.path[1:]: file.data
            for path, file in self._space.tree
            if file is not None and not path.path.startswith(but)
        }

    def visible(self) -> Mapping[str, bytes]:
        """See `World.visible`. Asked at every step, most of which change nothing."""
        tree = self._space.tree
        if self._seen is None or self._seen[0] != tree.version:
            visible = {
                name if name.startswith(_ELSEWHERE) else name[_OUT_LENGTH:]: file.data
                for path, file in tree
                if file is not None and not (name := path.path).startswith(_TEMPORARY) and name.startswith(_VISIBLE)
            }
            self._seen = tree.version, visible
        return self._seen[1]

    def read(self, name: str) -> bytes | None:
        """See `World.read`."""
        file = self._space.tree.find(self._space.path(name), "read")
        return None if file is None else file.data

    def generation(self, path: StorePath) -> File | None:
        """Returns the condition of a rename where each rename creates a new object: the object that exists there.

        A Google Cloud Storage client looks at an object, then moves it on condition of the generation it saw, so a
        request that arrives a second time moves nothing. Where renaming is the store's own, nothing is bound: None.
        """
        capabilities = self._space.capabilities
        if capabilities.directories or not capabilities.conditional_rename:
            return None
        try:
            return self._space.tree.file(path, "status")
        except StoreError:
            return None

    def directories(self) -> set[str]:
        """See `World.directories`."""
        return {path.path[1:] for path, file in self._space.tree if file is None}

    def setups_of(self, job_id: str) -> set[str]:
        """See `World.setups_of`. Asked at every step, most of which change nothing."""
        tree = self._space.tree
        if self._setups is None or self._setups[0] != tree.version:
            self._setups = tree.version, setups_of_directories(path.path[1:] for path, _file in tree)
        return self._setups[1].get(job_id, set())

    def write(self, name: str, data: bytes) -> None:
        """See `World.write`."""
        waiting = self._space.blocks.uncommitted(self._space.path(name))
        if waiting:
            self._dropped.setdefault(name, []).extend(waiting.values())
        self._space.write(f"/{name}", data)

    def dropped(self, name: str) -> Sequence[bytes]:
        """See `World.dropped`."""
        return self._dropped.get(name, ())

    def remove(self, name: str) -> None:
        """See `World.remove`."""
        self._space.tree.delete_file(self._space.path(name))

    def pending(self) -> set[str]:
        """See `World.pending`."""
        uploads = self._space.uploads
        return {
            f"{upload.path.path} {upload.upload_id}"
            for upload in uploads
            if uploads.parts(upload.path, upload.upload_id)
        }

    def begin_upload(self, name: str) -> None:
        """See `World.begin_upload`."""
        if self._space.capabilities.multipart:
            path = self._space.path(name)
            upload_id = self._space.uploads.create(path, "neighbour")
            self._space.uploads.put_part(path, upload_id, 1, b"another user's")

    def forget(self) -> None:
        """See `World.forget`."""
        MemoryStore.forget(self._space.name)


class DiskWorld(World):
    """A directory of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._seen: dict[tuple[int, int, int], bytes] = {}

    @property
    def destination(self) -> StorePath:
        """See `World.destination`."""
        return StorePath.of(os.path.join(self._root, OUT))

    def store(self) -> Store:
        """See `World.store`."""
        return LocalStore(threads=1)

    def files(self, but: str | None = None) -> dict[str, bytes]:
        """See `World.files`."""
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

    def setups_of(self, job_id: str) -> set[str]:
        """See `World.setups_of`."""
        above = os.path.join(self._root, OUT, TEMPORARY)
        names = os.listdir(above) if os.path.isdir(above) else []
        return setups_of_directories(f"{OUT}/{TEMPORARY}/{name}/" for name in names).get(job_id, set())

    def visible(self) -> Mapping[str, bytes]:
        """See `World.visible`."""
        found = self.files(but=f"{OUT}/{TEMPORARY}")
        here = {name[_OUT_LENGTH - 1 :]: data for name, data in found.items() if name.startswith(f"{OUT}/")}
        return here | {f"{self._root}/{name}": data for name, data in found.items() if name.startswith(f"{ELSEWHERE}/")}

    def read(self, name: str) -> bytes | None:
        """See `World.read`."""
        try:
            with open(os.path.join(self._root, name), "rb") as file:
                return file.read()
        except OSError:
            return None

    def directories(self) -> set[str]:
        """See `World.directories`."""
        return {
            os.path.relpath(os.path.join(directory, name), self._root)
            for directory, below, _names in os.walk(self._root)
            for name in below
        }

    def write(self, name: str, data: bytes) -> None:
        """See `World.write`."""
        path = os.path.join(self._root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def remove(self, name: str) -> None:
        """See `World.remove`."""
        os.unlink(os.path.join(self._root, name))

    def forget(self) -> None:
        """See `World.forget`."""
        return


# Stores by what they can do. `gcs` proves a file by metadata that a rename keeps, and moves exactly the generation that
# was asked for (`MemoryWorld.generation`); without that metadata a moved file proves nothing.
KINDS: Mapping[str, tuple[str, dict[str, bool]]] = {
    "local": ("local", {}),
    "hdfs": ("hdfs", {}),
    "adls": ("adls", {}),
    "gcs": ("gcs", {}),
    "gcs-no-identity": ("gcs", {"identity": False}),
    "no-identity": ("local", {"identity": False}),
    "s3": ("s3", {}),
    "azure-flat": ("azure-flat", {}),
}
_BY_NAME = {"conditional_delete": False, "conditional_batch_delete": False, "deletes_by_name": True}
# Services that speak like S3 and delete whatever has a name (decision 16). Only some seeds of `magic` run on them.
SERVICES: Mapping[str, tuple[str, dict[str, bool]]] = {
    "minio": ("s3", _BY_NAME),
    "oss": ("s3", {**_BY_NAME, "conditional_replace": False}),
}
# What renames nothing: files are completed uploads, or lists of blocks, and each fences itself.
UPLOADING: Sequence[str] = ("s3", "azure-flat", *SERVICES)
RENAMING: Sequence[str] = tuple(kind for kind in KINDS if kind not in UPLOADING)
PROVING: Sequence[str] = ("local", "hdfs", "adls", "gcs")
FENCING: Sequence[str] = ("local", "hdfs", "adls")


def world_of(kind: str) -> MemoryWorld:
    """A new memory space of one of `KINDS` or `SERVICES`."""
    profile, flags = KINDS[kind] if kind in KINDS else SERVICES[kind]
    return MemoryWorld(profile, **flags)
