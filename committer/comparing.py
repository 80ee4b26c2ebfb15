"""Looking at files that a record names, at a destination: whether they stand there, and are as long as it says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from committer.committers.opened_store import open_store
from committer.config import CommitterConfig
from committer.errors import CommitterError, StoreNotFoundError
from committer.events import names
from committer.file_names import root_of
from committer.flow.repeats import Repeats
from committer.flow.workers import run_workers
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.records.file_list import decode_names
from committer.records.success import SuccessData
from committer.stages.file_list import FILE_LIST, FILE_LIST_PROBLEM, list_named, read_parts
from committer.stages.success_content import files_committed
from committer.stores.base import Store

MOST_NAMED: Final = 10_000
"""Names, or sentences, of one kind that a report holds; a destination can lack millions of files."""


@dataclass(slots=True)
class Findings:
    """What was found of one kind.

    Attributes:
        count: How many.
        first: The first of them, at most `MOST_NAMED`.
    """

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Counts one more."""
        self.count += 1
        if len(self.first) < MOST_NAMED:
            self.first.append(text)


class Looks:
    """Looks at files, many at once, and says what is missing or wrong.

    Args:
        store: The destination's store.
        destination: The destination: a record may name nothing outside, but below the caller's `absolute_roots`.
        config: Those roots, and how much may be done at once.

    Attributes:
        missing: URIs of files that are not there.
        wrong: What is there but not as it should be, with the reason.
    """

    def __init__(self, store: Store, destination: StorePath, config: CommitterConfig) -> None:
        self.store = store
        self.destination = destination
        self.config = config
        self.missing: Findings = Findings()
        self.wrong: Findings = Findings()
        self._roots = JobLayout(destination, "any", roots=config.absolute_roots).roots

    async def compare(self, files: Iterable[tuple[str, int | None]]) -> None:
        """Looks at files by URI, each with its length; None where it is not known. One call a file."""
        await run_workers(files, self._look, workers=self.config.io_concurrency, operation="validate")

    async def _look(self, file: tuple[str, int | None]) -> None:
        uri, size = file
        path, destination = StorePath.from_uri(uri), self.destination
        outside = (path.scheme, path.authority) != (destination.scheme, destination.authority)
        if outside or not (path.is_under(destination) or root_of(path.path, self._roots)):
            hint = "" if outside else "; where the job may write there, give absolute_roots"
            self.wrong.add(f"{uri}: lies outside the destination; where that has two names, give the job's{hint}")
            return
        try:
            status = await self.store.status(path)
        except StoreNotFoundError:
            self.missing.add(uri)
            return
        if status.is_link:
            self.wrong.add(f"{uri}: is a link")
        elif status.is_directory:
            self.wrong.add(f"{uri}: is a directory")
        elif status.is_special:
            self.wrong.add(f"{uri}: is a pipe, a socket or a device")
        elif size is not None and status.size != size:
            self.wrong.add(f"{uri}: has {status.size} bytes, {size} were committed")


class ListedFiles:
    """The files of a job's complete list, compared with what stands there.

    Args:
        looks: How they are looked at.
        marker: The `_SUCCESS` that names the list.

    Attributes:
        uri: The list; empty where none may be read.
        compared: Whether all of it was.
        names: The files it names, by URI. Close it at the end.
        remark: Why it was not compared, and what to give so that it is.
    """

    def __init__(self, looks: Looks, marker: SuccessData) -> None:
        named, problem = marker.diagnostics.get(FILE_LIST, ""), marker.diagnostics.get(FILE_LIST_PROBLEM, "")
        path = list_named(named, marker.jobId, looks.destination, looks.config.file_list_directory) if named else None
        self.uri: str = path.uri if path is not None else ""
        self.compared: bool = False
        self.names: Repeats = Repeats()
        self.remark: str = f"its complete list could not be kept: {problem}" if problem else ""
        if named and path is None:
            self.remark = f"its complete list stands elsewhere, at {named}: give file_list_directory to compare it"
        self._path = path
        self._looks = looks
        self._marker = marker

    async def compare(self) -> None:
        """Reads the list, when there is one, and looks at every file; what is wrong with the list is a remark."""
        if self._path is None:
            return
        store = await self._store(self._path)
        try:
            # All of it before any file is looked at: a list that ends half way says nothing of the rest.
            if not await self._is_whole(store, self._path):
                return
            async for part in read_parts(store, self._path, decode_names):
                await self.names.add(file.path for file in part)
                await self._looks.compare((file.path, file.size) for file in part)
                del part
            self.compared = True
        finally:
            if store is not self._looks.store:
                await store.close()

    async def _store(self, path: StorePath) -> Store:
        here = self._looks.destination
        if (path.scheme, path.authority) == (here.scheme, here.authority):
            return self._looks.store
        return await open_store(path, config=self._looks.config)

    async def _is_whole(self, store: Store, first: StorePath) -> bool:
        """Whether the list names as many files, and bytes, as `_SUCCESS` speaks of."""
        files = size = 0
        try:
            async for part in read_parts(store, first, decode_names):
                files += len(part)
                size += sum(file.size for file in part)
                del part  # as long as the next one takes to read, two would be in memory
        except CommitterError as error:
            self.remark = f"the list {self.uri} was not compared: {error.message}"
            return False
        counters = self._marker.statistics().counters
        committed = files_committed(self._marker), counters.get(names.COMMITTER_BYTES_COMMITTED, 0)
        if (files, size) != committed:
            self.remark = (
                f"the list {self.uri} was not compared: it names {files} files of {size} bytes, _SUCCESS speaks of "
                f"{committed[0]} of {committed[1]} bytes"
            )
            return False
        return True
