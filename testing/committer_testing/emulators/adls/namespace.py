"""The account's namespace: what each operation of the service does to it, atomically, as plain calls without I/O."""

from __future__ import annotations

import re

from committer_testing.emulators.adls import leases
from committer_testing.emulators.adls.conditions import Conditions
from committer_testing.emulators.adls.errors import ServiceError
from committer_testing.emulators.adls.nodes import Clock, Filesystem, Node
from committer_testing.emulators.adls.settings import Settings

# "Naming and referencing containers": 3 to 63 characters, lower case, digits and single hyphens; $root and the like.
_FILESYSTEM_NAME = re.compile(r"(?!.*--)[$a-z0-9][-a-z0-9]{1,61}[a-z0-9]")


class Namespace:
    """Filesystems of an account and the paths in them. Every method is atomic: nothing else runs while it does."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.filesystems: dict[str, Filesystem] = {}

    # --- Filesystems ----------------------------------------------------------------------------------------------

    def create_filesystem(self, name: str, properties: dict[str, str]) -> Filesystem:
        """Creates one.

        Raises:
            ServiceError: InvalidResourceName, FilesystemAlreadyExists.
        """
        if not _FILESYSTEM_NAME.fullmatch(name):
            raise ServiceError("InvalidResourceName")
        if name in self.filesystems:
            raise ServiceError("FilesystemAlreadyExists")
        made = self.filesystems[name] = Filesystem(self._clock.etag(), properties)
        return made

    def filesystem(self, name: str) -> Filesystem:
        """The one of that name.

        Raises:
            ServiceError: FilesystemNotFound.
        """
        found = self.filesystems.get(name)
        if found is None:
            raise ServiceError("FilesystemNotFound")
        return found

    def delete_filesystem(self, name: str, conditions: Conditions, lease: str | None) -> None:
        """Deletes one with all it holds; at once, where the service takes its time (FilesystemBeingDeleted).

        Raises:
            ServiceError: It isn't there, is leased, or a condition isn't met.
        """
        found = self.filesystem(name)
        conditions.check(found)
        leases.check(found.lease, lease)
        del self.filesystems[name]

    # --- Looking --------------------------------------------------------------------------------------------------

    def find(self, filesystem: str, path: str) -> Node | None:
        """What is at a path; None for nothing.

        Raises:
            ServiceError: FilesystemNotFound.
        """
        return self._walk(self.filesystem(filesystem).root, path)

    def get(self, filesystem: str, path: str) -> Node:
        """What is at a path.

        Raises:
            ServiceError: FilesystemNotFound, PathNotFound.
        """
        node = self.find(filesystem, path)
        if node is None:
            raise ServiceError("PathNotFound")
        return node

    # --- Changing -------------------------------------------------------------------------------------------------

    def create(self, filesystem: str, path: str, *, directory: bool, conditions: Conditions, lease: str | None) -> Node:
        """Creates a file, or empties the one that is there, or creates a directory unless there is one.

        Missing parents are made. A directory that exists keeps what it holds.

        Raises:
            ServiceError: PathAlreadyExists with `If-None-Match: *`; a condition or lease isn't met; something of the
                other kind is there (Settings.type_change_code); a parent is a file (InvalidDestinationPath).
        """
        root = self.filesystem(filesystem).root
        if not path:
            raise ServiceError("PathAlreadyExists" if directory else self._settings.type_change_code)
        self.check_name(path)
        parents, _, name = path.rpartition("/")
        parent = self._walk(root, parents)
        existing = parent.children.get(name) if parent is not None and parent.children is not None else None
        self._check_target(existing, conditions, lease)
        if existing is not None and existing.is_directory != directory:
            raise ServiceError(self._settings.type_change_code)
        if existing is not None and directory:
            existing.touch(self._clock.etag())
            return existing
        parent = self._make_parents(root, parents) if parent is None else parent
        if parent.children is None:
            raise ServiceError("InvalidDestinationPath")
        made = Node(self._clock.etag(), directory=directory)
        if existing is not None and existing.lease is not None and lease is not None:
            # A client that names the lease keeps it over the new content.
            made.lease = existing.lease
        parent.add(name, made)
        return made

    def rename(
        self,
        source: tuple[str, str],
        target: tuple[str, str],
        *,
        conditions: Conditions,
        source_conditions: Conditions,
        lease: str | None,
        source_lease: str | None,
    ) -> Node:
        """Moves a file or a directory with all it holds, in one step; an existing target of its kind is replaced.

        Raises:
            ServiceError: SourcePathNotFound; SourceConditionNotMet; the source is leased; InvalidRenameSourcePath;
                RenameDestinationParentPathNotFound; PathAlreadyExists with `If-None-Match: *`; ConditionNotMet;
                InvalidSourceOrDestinationResourceType; the target is a directory that holds something.
        """
        source_root = self.filesystem(source[0]).root
        target_root = self.filesystem(target[0]).root
        if not source[1] or not target[1]:
            raise ServiceError("InvalidRenameSourcePath" if not source[1] else "InvalidDestinationPath")
        self.check_name(target[1])
        source_parents, _, source_name = source[1].rpartition("/")
        source_parent = self._walk(source_root, source_parents)
        node = (source_parent.children or {}).get(source_name) if source_parent is not None else None
        if source_parent is None or node is None:
            raise ServiceError("SourcePathNotFound")
        source_conditions.check(node)
        leases.check(node.lease, source_lease)
        same = source == target
        if node.is_directory and source[0] == target[0] and (same or target[1].startswith(source[1] + "/")):
            raise ServiceError("InvalidRenameSourcePath")
        parents, _, name = target[1].rpartition("/")
        parent = self._walk(target_root, parents)
        if parent is None:
            raise ServiceError("RenameDestinationParentPathNotFound")
        if parent.children is None:
            raise ServiceError("InvalidDestinationPath")
        existing = parent.children.get(name)
        self._check_target(existing, conditions, lease)
        if existing is not None:
            if existing.is_directory != node.is_directory:
                raise ServiceError("InvalidSourceOrDestinationResourceType")
            if existing.children:
                raise ServiceError(self._settings.non_empty_target_code)
        if not same:
            source_parent.remove(source_name)
            parent.add(name, node)
        if self._settings.etag_through_rename == "changed":
            node.touch(self._clock.etag())
        return node

    def delete(
        self, filesystem: str, path: str, *, recursive: bool, conditions: Conditions, lease: str | None
    ) -> str | None:
        """Deletes a file or directory; a continuation if there is more than one call may delete, else None.

        A call that stops has deleted some of what the directory holds, and nothing else.

        Raises:
            ServiceError: PathNotFound; DirectoryNotEmpty unless `recursive`; a condition or lease isn't met.
        """
        root = self.filesystem(filesystem).root
        parents, _, name = path.rpartition("/")
        parent = self._walk(root, parents)
        node = (parent.children or {}).get(name) if parent is not None and path else None
        if parent is None or node is None:
            raise ServiceError("PathNotFound")
        conditions.check(node)
        leases.check(node.lease, lease)
        if node.children and not recursive:
            raise ServiceError("DirectoryNotEmpty")
        limit = self._settings.delete_page
        if node.children and limit and _prune(node, limit) < 0:
            return self._clock.etag().strip('"')
        parent.remove(name)
        return None

    # --- Rules ----------------------------------------------------------------------------------------------------

    def check_name(self, path: str) -> None:
        """Raises ServiceError if nothing may be created under this name."""
        if self._settings.trailing_period == "refused" and any(part.endswith(".") for part in path.split("/")):
            raise ServiceError("InvalidResourceName")

    def _check_target(self, existing: Node | None, conditions: Conditions, lease: str | None) -> None:
        if existing is not None and conditions.only_if_absent:
            raise ServiceError("PathAlreadyExists")
        conditions.check(existing)
        held = existing.lease if existing is not None else None
        if lease is None and self._settings.overwriting_breaks_lease:
            return
        leases.check(held, lease)

    @staticmethod
    def _walk(node: Node, path: str) -> Node | None:
        if not path:
            return node
        found: Node | None = node
        for name in path.split("/"):
            if found is None or found.children is None:
                return None
            found = found.children.get(name)
        return found

    def _make_parents(self, root: Node, path: str) -> Node:
        node = root
        for name in path.split("/") if path else ():
            if node.children is None:
                raise ServiceError("InvalidDestinationPath")
            child = node.children.get(name)
            if child is None:
                child = Node(self._clock.etag(), directory=True)
                node.add(name, child)
            node = child
        return node


def _prune(directory: Node, left: int) -> int:
    """Deletes up to `left` paths below a directory, last ones first; how many more it could have, -1 if not all."""
    while directory.children:
        if not left:
            return -1
        name, child = directory.remove_last()
        if child.children:
            left = _prune(child, left)
            if left <= 0:
                directory.add(name, child)
                return -1
        left -= 1
    return left
