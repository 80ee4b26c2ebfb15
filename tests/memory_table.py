"""A destination `table` in a memory space, looked at and changed past the store."""

from __future__ import annotations

from committer.stores.memory import MemorySpace


class MemoryTable:
    """What lies below the destination.

    Attributes:
        space: The memory space.
    """

    space: MemorySpace

    def all_files(self) -> dict[str, bytes]:
        """Every file below the destination, by relative name."""
        return {
            name.removeprefix("/table/"): data
            for name, data in self.space.files().items()
            if name.startswith("/table/")
        }

    def write(self, name: str, data: bytes) -> None:
        """Puts a file there, with its directories."""
        self.space.write(f"/table/{name}", data)

    def remove(self, name: str) -> None:
        """Deletes a file, or a directory with all in it."""
        path = self.space.path(f"table/{name}")
        if path.path in self.space.files():
            self.space.tree.delete_file(path)
        else:
            self.space.tree.delete_directory(path, recursive=True)
