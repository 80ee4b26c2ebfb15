"""The files of a NameNode as the checker of the guarantees sees them: by Hadoop's own client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.hdfs import HdfsStore
from committer_testing.simulate.worlds import OUT
from tests.guarantees.walked import WalkedWorld
from tests.hdfs.cluster import Cluster

# What a status says of itself: one call to Java for a whole directory.
_STATUS: Final = re.compile(
    r"\{path=hdfs://[^/]*(?P<path>/.*?); isDirectory=(?P<directory>true|false);(?: length=(?P<length>\d+);)?"
    r".*?modification_time=(?P<modified>\d+);"
)


class _Seen(NamedTuple):
    is_directory: bool
    length: int
    modified: int


class NameNodeWorld(WalkedWorld):
    """A directory of a NameNode."""

    def __init__(self, cluster: Cluster, root: StorePath) -> None:
        self._cluster = cluster
        self._root = root
        self._contents: dict[tuple[str, _Seen], bytes] = {}

    @property
    def destination(self) -> StorePath:
        return self._root / OUT

    def store(self) -> Store:
        return HdfsStore.open_for(self._root, {})

    def files(self, but: str | None = None) -> dict[str, bytes]:
        return {name: self._content(name, seen) for name, seen in self._walk(but) if not seen.is_directory}

    def read(self, name: str) -> bytes | None:
        above, _, _last = name.rpartition("/")
        seen = dict(self._entries(above)).get(name)
        return None if seen is None or seen.is_directory else self._content(name, seen)

    def directories(self) -> set[str]:
        return {name for name, seen in self._walk() if seen.is_directory}

    def write(self, name: str, data: bytes) -> None:
        stream = self._cluster.hdfs.create(self._path(name), True)
        stream.write(bytearray(data))
        stream.close()

    def remove(self, name: str) -> None:
        self._cluster.hdfs.delete(self._path(name), False)

    def forget(self) -> None:
        self._cluster.hdfs.delete(self._path(""), True)

    def _walk(self, but: str | None = None) -> Iterator[tuple[str, _Seen]]:
        pending = [""]
        while pending:
            for name, seen in self._entries(pending.pop()):
                if name == but:
                    continue
                yield name, seen
                if seen.is_directory:
                    pending.append(name)

    def _entries(self, directory: str) -> list[tuple[str, _Seen]]:
        client, path = self._cluster.hdfs, self._path(directory)
        if not client.exists(path):
            return []
        text = self._cluster.text_of(client.listStatus(path))
        start = len(self._root.path) + 1
        return [
            (
                found["path"][start:],
                _Seen(found["directory"] == "true", int(found["length"] or 0), int(found["modified"])),
            )
            for found in _STATUS.finditer(text)
        ]

    def _content(self, name: str, seen: _Seen) -> bytes:
        # A rename keeps what a file is known by.
        key = name.rpartition("/")[2], seen
        if key not in self._contents:
            stream = self._cluster.hdfs.open(self._path(name))
            try:
                self._contents[key] = bytes(stream.readAllBytes())
            finally:
                stream.close()
        return self._contents[key]

    def _path(self, name: str) -> object:
        return self._cluster.path(f"{self._root.path}/{name}".rstrip("/"))
