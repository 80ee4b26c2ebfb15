"""Lists the files that `_SUCCESS` names, for readers that do not list a destination."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

import msgspec

from committer.api.validate import read_marker
from committer.committers.advising import advised
from committer.committers.opened_store import open_store, store_beside
from committer.errors import InvalidPathError, RecordError, StoreNotFoundError, ValidationError
from committer.file_names import root_of
from committer.flow.workers import run_workers
from committer.layout import SUCCESS, JobLayout
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.paths import StorePath
from committer.readable import Shown
from committer.records.file_list import CommittedFile, ListedFile, partition_of
from committer.records.success import SuccessData
from committer.stages.finish.file_list import FILE_LIST, list_named, read_parts
from committer.stages.identity import is_regular
from committer.stages.state.success_content import files_committed, named_uris
from committer.stores.base import Store
from committer.stores.helpers import status_or_none

_OPERATION = "list_winners"
_ANOTHER_WAY = (
    "read all that exists there, if the committer that wrote it shows nothing else; or write it with "
    "committer='stocator', or with a file_list_directory below the destination"
)


class Winners(Shown, frozen=True, kw_only=True):
    """The files of the last job that committed to a destination: those of the winning task attempts.

    With pyarrow: ``pyarrow.dataset.dataset(winners.paths, filesystem=...)``. With Spark:
    ``spark.read.option("basePath", destination).parquet(*winners.uris)``.

    Attributes:
        job_id: The job.
        committer: Its committer.
        files: Every file, in the order of its names.
    """

    job_id: str
    committer: str
    files: list[CommittedFile]

    @property
    def uris(self) -> list[str]:
        """URIs of the files, in the scheme that the caller gave, as Spark and fsspec read them (not escaped)."""
        return [str(StorePath.from_uri(file.path)) for file in self.files]

    @property
    def paths(self) -> list[str]:
        """Paths of the files as pyarrow's filesystems name them: ``bucket/key``, or the path of a local file."""
        found = [StorePath.from_uri(file.path) for file in self.files]
        return [f"{path.authority.partition('@')[0]}{path.path}" for path in found]


@advised
async def list_winners(
    dest: str | os.PathLike[str] | StorePath,
    *,
    check: bool = True,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> Winners:
    """Returns the files that count at a destination by its `_SUCCESS`, as readers of `stocator`'s output must.

    For other committers, if `_SUCCESS` names every file, or a complete list below the destination (or in
    `config.file_list_directory`). Nothing is listed: one call, one for 100,000 files of a list, and with
    `check` one look a file. Files outside the destination are accepted only below `config.absolute_roots`.

    Args:
        check: Check that each file exists, with the committed length.

    Raises:
        JobNotFoundError: There is no `_SUCCESS`.
        DestinationNotFoundError: The destination does not exist, or its bucket or container.
        RecordError: `_SUCCESS` is empty, of another form, does not name every file, or names one outside.
        ValidationError: A file that it names does not exist, or has another length.
    """
    destination = StorePath.of(dest)
    config = config_of(config) or CommitterConfig()
    async with open_store(destination, storage_options, config) as store:
        marker = await _read(store, destination, config)
        named = await _named(store, destination, marker, config)
        roots = JobLayout(destination, "any", roots=config.absolute_roots).roots
        found = sorted(((_inside(destination, roots, uri), size) for uri, size in named), key=lambda file: file[0])
        files = await _looked_at(store, destination, found, check=check, workers=config.io_concurrency)
    return Winners(job_id=marker.jobId, committer=marker.committer, files=files)


async def _read(store: Store, destination: StorePath, config: CommitterConfig) -> SuccessData:
    try:
        marker = await read_marker(store, destination, config, operation=_OPERATION)
    except RecordError as error:
        error.operation, error.next_step = _OPERATION, _ANOTHER_WAY
        raise
    if not marker.success:
        raise _says_not(destination, "speaks of a job that did not commit")
    return marker


async def _named(
    store: Store, destination: StorePath, marker: SuccessData, config: CommitterConfig
) -> list[tuple[str, int | None]]:
    """Returns URI and length (None if unknown) of every file that the job committed."""
    committed, named = files_committed(marker), named_uris(marker, destination)
    if len(named) == committed:
        sizes: list[int | None] = list(marker.lengths) if marker.lengths is not None else [None] * committed
        return list(zip(named, sizes, strict=True))
    told = marker.diagnostics.get(FILE_LIST, "")
    first = list_named(told, marker.jobId, destination, config.file_list_directory) if told else None
    if first is None:
        where = f"; its complete list is at {told}: give file_list_directory" if told else ""
        raise _says_not(destination, f"names {len(named)} of {committed} files{where}")
    found: list[tuple[str, int | None]] = []
    async with store_beside(store, destination, first, config) as listing:
        try:
            async for part in read_parts(listing, first, ListedFile):
                found.extend((file.path, file.size) for file in part)
        except StoreNotFoundError as error:
            raise _says_not(destination, f"names a complete list that is gone: {first}") from error
    if len(found) != committed:
        raise _says_not(destination, f"speaks of {committed} files, and the list {first} names {len(found)}")
    return found


def _says_not(destination: StorePath, what: str) -> RecordError:
    return RecordError(
        f"{SUCCESS} at {destination} {what}: it does not tell which files count",
        field="filenames",
        operation=_OPERATION,
        path=destination / SUCCESS,
        next_step=_ANOTHER_WAY,
    )


def _inside(destination: StorePath, roots: Collection[str], uri: str) -> StorePath:
    """Returns the path of a URI that a record may name, in the scheme that the caller gave."""
    try:
        read = StorePath.from_uri(uri)
    except InvalidPathError as error:
        raise _says_not(destination, f"names no path: {error.message}") from error
    path = msgspec.structs.replace(destination, path=read.path)
    if read.authority != destination.authority or not (path.is_under(destination) or root_of(path.path, roots)):
        raise _says_not(destination, f"names {uri}, which lies outside the destination")
    return path


async def _looked_at(
    store: Store, destination: StorePath, found: list[tuple[StorePath, int | None]], *, check: bool, workers: int
) -> list[CommittedFile]:
    """Returns the files; one look at each that is checked, or whose length is unknown."""
    sizes = {path: size for path, size in found if size is not None}
    wrong: list[str] = []

    async def look(file: tuple[StorePath, int | None]) -> None:
        path, size = file
        status = await status_or_none(store, path)
        if status is None:
            wrong.append(f"{path} is missing")
        elif not is_regular(status):
            wrong.append(f"{path} is no file")
        elif size is not None and status.size != size:
            wrong.append(f"{path} has {status.size} bytes, {size} were committed")
        else:
            sizes[path] = status.size

    await run_workers((file for file in found if check or file[1] is None), look, workers=workers, operation=_OPERATION)
    if wrong:
        raise ValidationError(
            f"files that {SUCCESS} at {destination} names are not there as they were committed: {min(wrong)}"
            + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""),
            operation=_OPERATION,
            path=destination,
            next_step="another job, or a user, deleted or replaced them: read again if a job ends meanwhile; else run "
            "the job that wrote them again",
        )
    return [
        CommittedFile(path=path.uri, size=sizes[path], partition=_partition(destination, path)) for path, _ in found
    ]


def _partition(destination: StorePath, path: StorePath) -> dict[str, str | None]:
    directory = path.parent
    return partition_of(directory.relative_to(destination) if directory.is_under(destination) else "")
