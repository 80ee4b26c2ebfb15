"""The stage that writes the complete list of a job's files into `file_list_directory`, and the reading of its parts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Final, cast

from committer.errors import InvalidPathError, RecordError, StoreNotFoundError
from committer.file_names import root_of
from committer.layout import JobLayout
from committer.options.config import FileListFormat
from committer.paths import StorePath, encode_uri_path
from committer.records.file_list import ENTRIES_IN_A_PART, CommittedFile, F, decode_part, encode_part, partition_of
from committer.records.limits import LIMITS
from committer.records.publish_chunk import PlannedFile
from committer.stages.base import Stage, StageContext
from committer.stages.load.planned_files import PlannedFiles
from committer.stages.names import is_absolute
from committer.stores.base import Store

FILE_LIST: Final = "committer.file.list"
FILE_LIST_PROBLEM: Final = "committer.file.list.problem"
"""This engine's keys in the diagnostics of `_SUCCESS`: the first part of the list, and why there is none."""

_FORMATS: Final = ("jsonl", "parquet")
_DIGEST: Final = re.compile(r"[0-9a-f]{12}")


class SaveFileList(Stage[PlannedFiles, StorePath]):
    """The stage that writes the job's file list to `<job id>-<digest>.jsonl` (or `.parquet`) and further parts.

    The digest is the destination's, so that jobs of one id at several destinations may share the directory. A part
    has 100,000 files and is replaced as a whole; every driver writes the same parts, so a repeat is harmless. The
    last part is the one that is not full. One part is in memory at a time, besides what `PlannedFiles` keeps.

    Preconditions: outcome `committed`; the winners' records exist.
    Postconditions: the list has as many files and bytes as the decision (`expected`).
    Failure modes: `RecordError` if the files are not those of the decision; a store error leaves parts that the next
    driver replaces.
    Cost: one call, and one per 100,000 files; if files are not in memory, the records are read again.
    """

    name = "job_stage_save_file_list"

    def __init__(self, context: StageContext, *, store: Store, directory: StorePath, expected: tuple[int, int]) -> None:
        super().__init__(context)
        self._store = store
        self._directory = directory
        self._expected = expected
        self._part: list[CommittedFile] = []
        self._parts = 0

    async def execute(self, value: PlannedFiles) -> StorePath:
        """Writes the parts; returns the first."""
        files = size = 0
        await self._store.make_directory(self._directory, parents=True)
        describe = _describer(self.context)
        async for batch in value.batches():
            for file in batch:
                self._part.append(describe(file))
                files += 1
                size += file.size
                if len(self._part) == ENTRIES_IN_A_PART:
                    await self._put()
        await self._put()
        first = first_part(self._directory, self.context.layout, self.context.config.file_list_format)
        if (files, size) != self._expected:
            raise RecordError(
                f"the records of the job name {files} files of {size} bytes, {self._expected[0]} of "
                f"{self._expected[1]} bytes were decided",
                path=first,
            )
        return first

    async def _put(self) -> None:
        form = self.context.config.file_list_format
        path = _nth_part(first_part(self._directory, self.context.layout, form), self._parts)
        part, self._part = self._part, []
        await self._store.put(path, encode_part(part, form), durable=self.context.durable)
        self._parts += 1


def first_part(directory: StorePath, layout: JobLayout, form: FileListFormat) -> StorePath:
    """Returns the path of the first part of a job's list."""
    return directory / f"{layout.unique_name}.{form}"


def list_named(uri: str, job_id: str, destination: StorePath, directory: str) -> StorePath | None:
    """Returns the list that a record names, if it is below the destination or in the caller's `directory` (G10)."""
    try:
        path = StorePath.from_uri(uri)
        stem, _, form = path.name.rpartition(".")
        # The destination may be spelled differently than when the list was written.
        if not (stem.startswith(f"{job_id}-") and _DIGEST.fullmatch(stem, len(job_id) + 1) and form in _FORMATS):
            return None
        return path if path.is_under(destination) or (directory and path.parent == StorePath.of(directory)) else None
    except InvalidPathError:
        return None


async def read_parts(store: Store, first: StorePath, kind: type[F]) -> AsyncIterator[list[F]]:
    """Yields the files of a list, a part at a time: one call each."""
    # `StoreNotFoundError` means that there is no list, `RecordError` that a part is missing or damaged.
    form = cast("FileListFormat", first.name.rpartition(".")[2])
    number, last = 0, False
    while not last:
        path = _nth_part(first, number)
        try:
            data = await store.read(path, limit=LIMITS["file list"])
        except StoreNotFoundError as error:
            if number == 0:
                raise
            raise RecordError("a part of a list of committed files is missing", path=path) from error
        files = decode_part(data, form, kind, str(path))
        number, last = number + 1, len(files) < ENTRIES_IN_A_PART
        # A part is some 20 MB, and as much again decoded: neither is kept while the next one is read.
        del data
        yield files
        del files


def _nth_part(first: StorePath, number: int) -> StorePath:
    if number == 0:
        return first
    stem, _, form = first.name.rpartition(".")
    # No job's id contains a tilde, so this is never another job's list.
    return first.parent / f"{stem}~{number:05d}.{form}"


def _describer(context: StageContext) -> Callable[[PlannedFile], CommittedFile]:
    layout = context.layout
    above = (layout.destination / "x").uri[:-1]

    def describe(file: PlannedFile) -> CommittedFile:
        name = file.destination
        if is_absolute(name):
            uri = layout.target(name).uri
            name = name[len(root_of(name, layout.roots) or "") + 1 :]
        else:
            uri = above + encode_uri_path(name)
        return CommittedFile(path=uri, size=file.size, partition=partition_of(name.rpartition("/")[0]))

    return describe
