"""Hadoop's client of a store, in a JVM: what tests do through it, whatever the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from .hadoop import in_java
from .jvm import Jvm


class HadoopFileSystem:
    """Hadoop's FileSystem of one place.

    Args:
        jvm: Where it runs.
        root: The URI of the place, without a slash at its end.
        settings: Hadoop's options.

    Attributes:
        root: The URI.
        conf: Hadoop's Configuration.
        filesystem: The Java object, once it is opened.
    """

    def __init__(self, jvm: Jvm, root: str, settings: Mapping[str, str]) -> None:
        self._jvm = jvm
        self.root = root
        self.conf = jvm.view.org.apache.hadoop.conf.Configuration()
        for key, value in settings.items():
            self.conf.set(key, value)
        self.filesystem: Any = None

    async def open(self) -> Self:
        """Connects."""
        self.filesystem = await in_java(lambda: self.path("/").getFileSystem(self.conf))
        return self

    def path(self, path: str) -> Any:
        """Hadoop's Path. Calls Java."""
        return self._jvm.view.org.apache.hadoop.fs.Path(self.root + path)

    async def write(self, path: str, data: bytes, *, overwrite: bool = True) -> None:
        """Writes a file."""

        def write() -> None:
            stream = self.filesystem.create(self.path(path), overwrite)
            stream.write(data)
            stream.close()

        await in_java(write)

    async def read(self, path: str) -> bytes:
        """Reads a file."""

        def read() -> bytes:
            stream = self.filesystem.open(self.path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return await in_java(read)

    async def names(self, path: str) -> list[str]:
        """The names in a directory."""
        return await in_java(
            lambda: sorted(str(status.getPath().getName()) for status in self.filesystem.listStatus(self.path(path)))
        )

    async def rename(self, source: str, target: str) -> bool:
        """Renames."""
        return await in_java(lambda: bool(self.filesystem.rename(self.path(source), self.path(target))))

    async def close(self) -> None:
        """Disconnects."""
        await in_java(self.filesystem.close)
