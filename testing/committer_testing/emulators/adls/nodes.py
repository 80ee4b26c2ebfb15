"""Nodes of a namespace: files, directories, filesystems, and the clock that stamps them."""

from __future__ import annotations

import time

from committer_testing.emulators.adls.leases import Lease
from committer_testing.emulators.serving import HttpClock

OWNER = "$superuser"
FILE_PERMISSIONS = "rw-r-----"
DIRECTORY_PERMISSIONS = "rwxr-x---"


class Clock(HttpClock):
    """Gives etags that never repeat, and times as HTTP writes them."""

    def __init__(self) -> None:
        super().__init__()
        # An etag of the service is a time in units of 100 ns since the year 1, in hexadecimal; a counter from there
        # never repeats.
        self._last = time.time_ns() // 100 + 62_135_596_800 * 10_000_000

    def etag(self) -> str:
        """The next etag, in quotes."""
        self._last += 1
        return f'"0x{self._last:X}"'


class Node:
    """A file or directory. It doesn't know its name: a rename touches its parents alone.

    Attributes:
        children: By name, for a directory; None for a file.
        data: What was flushed.
        uncommitted: What was appended and not yet flushed, by position.
        properties: User metadata, by name.
        content: The headers Content-Type, Content-Encoding, ... that a read gives back, by their lower-case names.
        by_blob_api: Whether a blob call wrote its data, so that the DFS endpoint may not append.
        lease: None unless a client acquired one.
    """

    __slots__ = (
        "_names",
        "acl",
        "by_blob_api",
        "children",
        "content",
        "created",
        "data",
        "etag",
        "group",
        "lease",
        "modified",
        "owner",
        "permissions",
        "properties",
        "uncommitted",
    )

    def __init__(self, etag: str, *, directory: bool) -> None:
        self.children: dict[str, Node] | None = {} if directory else None
        self.etag: str = etag
        self.created: float = time.time()
        self.modified: float = self.created
        self.owner: str = OWNER
        self.group: str = OWNER
        self.permissions: str = DIRECTORY_PERMISSIONS if directory else FILE_PERMISSIONS
        self.acl: str | None = None
        self.data: bytes = b""
        self.uncommitted: dict[int, bytes] | None = None
        self.properties: dict[str, str] = {}
        self.content: dict[str, str] = {}
        self.by_blob_api: bool = False
        self.lease: Lease | None = None
        self._names: list[str] | None = None

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.children is not None

    @property
    def access_list(self) -> str:
        """The access control list in its short form."""
        if self.acl is not None:
            return self.acl
        user, group, other = self.permissions[:3], self.permissions[3:6], self.permissions[6:9]
        return f"user::{user},group::{group},other::{other.replace('t', 'x').replace('T', '-')}"

    def touch(self, etag: str) -> None:
        """Marks a change."""
        self.etag = etag
        self.modified = time.time()

    def names(self) -> list[str]:
        """A directory's names in order; sorted once after each change, however many pages read it."""
        if self._names is None:
            self._names = sorted(self.children or ())
        return self._names

    def add(self, name: str, node: Node) -> None:
        """Puts a child there."""
        held = self._held
        if self._names is not None and name not in held:
            self._names = None
        held[name] = node

    @property
    def _held(self) -> dict[str, Node]:
        if self.children is None:
            raise NotADirectoryError("a file holds nothing")
        return self.children

    def remove(self, name: str) -> Node:
        """Takes a child away."""
        self._names = None
        return self._held.pop(name)

    def remove_last(self) -> tuple[str, Node]:
        """Takes the child added last away; unlike the first, found at once after many removals."""
        self._names = None
        return self._held.popitem()


class Filesystem:
    """A filesystem, a container to the blob endpoint.

    Attributes:
        root: Its root directory.
        properties: User metadata, by name.
        lease: None unless a client acquired one.
        public_access: As a container's x-ms-blob-public-access; kept, never granted.
        policies: The XML of its stored access policies, kept as given.
    """

    __slots__ = ("etag", "lease", "modified", "policies", "properties", "public_access", "root")

    def __init__(self, etag: str, properties: dict[str, str]) -> None:
        self.root: Node = Node(etag, directory=True)
        self.etag: str = etag
        self.modified: float = time.time()
        self.properties: dict[str, str] = properties
        self.lease: Lease | None = None
        self.public_access: str | None = None
        self.policies: bytes = b""

    def touch(self, etag: str) -> None:
        """Marks a change of its metadata."""
        self.etag = etag
        self.modified = time.time()
