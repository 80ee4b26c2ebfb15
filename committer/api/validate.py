"""Compares a destination with its `_SUCCESS`, and lists the files that it names for readers that do not list."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from committer.advice import call
from committer.committers.advising import advised
from committer.committers.opened_store import open_store, store_beside
from committer.errors import (
    CommitterError,
    InvalidPathError,
    JobNotFoundError,
    RecordError,
    StoreIsADirectoryError,
    StoreNotFoundError,
    ValidationError,
)
from committer.events import names as event_names
from committer.file_names import is_reserved, root_of, working_directory_in
from committer.flow.texts import Repeats
from committer.flow.workers import run_workers
from committer.layout import SUCCESS, JobLayout
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.paths import StorePath
from committer.readable import Shown
from committer.records.file_list import CommittedFile, ListedFile, partition_of
from committer.records.limits import LIMITS
from committer.records.success import SuccessData, decode_success
from committer.stages.finish.file_list import FILE_LIST, FILE_LIST_PROBLEM, list_named, read_parts
from committer.stages.identity import is_regular, stands_as_directory
from committer.stages.load.manifest_forms import MANIFEST_COMMITTER
from committer.stages.names import is_hidden
from committer.stages.state.success_content import WAS_EMPTY, files_committed, named_uris
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import check_destination, status_or_none, walk

MOST_NAMED: Final = 10_000
"""The most names, or sentences, of one kind in a report; a destination can lack millions of files."""


@dataclass(slots=True)
class Findings:
    """Findings of one kind: their number, and the first `MOST_NAMED` of them."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Adds one."""
        self.count += 1
        if len(self.first) < MOST_NAMED:
            self.first.append(text)


class Looks:
    """Checks of files, many at once: `missing` are URIs, `wrong` files that differ from their record."""

    def __init__(self, store: Store, destination: StorePath, config: CommitterConfig) -> None:
        self.store = store
        self.destination = destination
        self.config = config
        self.missing: Findings = Findings()
        self.wrong: Findings = Findings()
        self._roots = JobLayout(destination, "any", roots=config.absolute_roots).roots

    async def compare(self, files: Iterable[tuple[str, int | None]]) -> None:
        """Checks files by URI and length (None if unknown): one call a file."""
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
    """Comparison of a job's complete list with the destination.

    Attributes:
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
            self.remark = f"its complete list exists elsewhere, at {named}: give file_list_directory to compare it"
        self._path = path
        self._looks = looks
        self._marker = marker

    async def compare(self) -> None:
        """Reads the list, if there is one, and checks every file; a damaged list is a remark."""
        if self._path is None:
            return
        looks = self._looks
        async with store_beside(looks.store, looks.destination, self._path, looks.config) as store:
            # The whole list is read first: a list that ends half way tells nothing of the rest.
            if not await self._is_whole(store, self._path):
                return
            async for part in read_parts(store, self._path, ListedFile):
                await self.names.add(file.path for file in part)
                await self._looks.compare((file.path, file.size) for file in part)
                del part
            self.compared = True

    async def _is_whole(self, store: Store, first: StorePath) -> bool:
        """Returns whether the list has as many files and bytes as `_SUCCESS`."""
        files = size = 0
        try:
            async for part in read_parts(store, first, ListedFile):
                files += len(part)
                size += sum(file.size for file in part)
                del part  # Else two parts would be in memory while the next one is read.
        except CommitterError as error:
            self.remark = f"the list {self.uri} was not compared: {error.message}"
            return False
        counters = self._marker.statistics().counters
        committed = files_committed(self._marker), counters.get(event_names.COMMITTER_BYTES_COMMITTED, 0)
        if (files, size) != committed:
            self.remark = (
                f"the list {self.uri} was not compared: it names {files} files of {size} bytes, _SUCCESS speaks of "
                f"{committed[0]} of {committed[1]} bytes"
            )
            return False
        return True


# A key that only this engine's reports have among their diagnostics.
_ENGINE = "committer.engine"
# Number of URIs that are hashed at a time.
_TOGETHER: Final = 1000


class ValidationReport(Shown, frozen=True, kw_only=True):
    """Result of comparing a destination with its `_SUCCESS`.

    Attributes:
        ok: Whether nothing is missing, wrong or extra.
        missing: URIs of committed files that do not exist; at most 10,000, as in the next two. Each has a count.
        wrong: Files that differ from their record, with the reason.
        extra: URIs of files that the job did not write. Known only if the destination was empty before it.
        job_id: The job that `_SUCCESS` describes.
        files: Number of files that were compared.
        committed: Number of files that the job committed.
        complete: Whether every file of the job could be compared: `_SUCCESS` names at most a hundred.
        file_list: URI of the complete list that was compared; empty if none was.
        remark: Why the complete list of the job was not compared, and what to give so that it is.
    """

    ok: bool
    missing: list[str]
    wrong: list[str]
    extra: list[str]
    job_id: str = ""
    files: int = 0
    committed: int = 0
    complete: bool = True
    file_list: str = ""
    remark: str = ""
    missing_count: int = 0
    wrong_count: int = 0
    extra_count: int = 0


@advised
async def validate(
    dest: str | os.PathLike[str] | StorePath,
    *,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> ValidationReport:
    """Compares a destination with what its job committed: names and lengths, totals if it was empty before.

    If the job wrote a complete list (`CommitterConfig.file_list_directory`), below the destination or in the
    directory that `config` names again, every file is compared with that: one look a file, and one call for
    100,000 of them. Else one look for each file that `_SUCCESS` names (at most a hundred). Files outside the
    destination are checked only below `config.absolute_roots`. If the destination was empty before the job (and
    nothing was written elsewhere), also one listing a directory, which finds extra files, and without a list
    compares number and bytes. Memory stays flat: names are compared by their hashes, on disk if there are many.
    If `_SUCCESS` names Hadoop's manifest committer and no committed file, existing files are reported as wrong
    (see `names_manifest_committer_in_vain`).

    Raises:
        JobNotFoundError: There is no `_SUCCESS`.
        DestinationNotFoundError: The destination does not exist, or its bucket or container.
        RecordError: It cannot be read; an empty one was written by a committer that reports nothing.
    """
    destination = StorePath.of(dest)
    config = config_of(config) or CommitterConfig()
    async with open_store(destination, storage_options, config) as store:
        marker = await read_marker(store, destination, operation="validate")
        looks = Looks(store, destination, config)
        listed = ListedFiles(looks, marker)
        async with listed.names:
            return await _compare(looks, listed, marker)


async def _compare(looks: Looks, listed: ListedFiles, marker: SuccessData) -> ValidationReport:
    store, destination, committed = looks.store, looks.destination, files_committed(marker)
    await listed.compare()
    if not listed.compared:
        await looks.compare(_named_files(marker, destination))
    whole = listed.compared or committed <= len(marker.filenames)
    missing, wrong, extra = looks.missing, looks.wrong, Findings()
    if marker.diagnostics.get(WAS_EMPTY) == "true":
        tree = _Tree(store, destination, _own_places(looks.config, listed))
        named = named_uris(marker, destination)
        if listed.compared:
            extra = await tree.not_among(listed.names)
        elif whole:
            async with Repeats() as names:
                await names.add(named)
                extra = await tree.not_among(names)
        else:
            await tree.compare_totals(marker, set(named), wrong)
        complete = True
    else:
        complete = whole
        if names_manifest_committer_in_vain(marker):
            await _look_for_written_past(store, destination, wrong)
    return ValidationReport(
        ok=not (missing.count or wrong.count or extra.count),
        missing=sorted(missing.first),
        wrong=sorted(wrong.first),
        extra=sorted(extra.first),
        missing_count=missing.count,
        wrong_count=wrong.count,
        extra_count=extra.count,
        job_id=marker.jobId,
        files=committed if complete else len(marker.filenames),
        committed=committed,
        complete=complete,
        file_list=listed.uri if listed.compared else "",
        remark=listed.remark,
    )


def _named_files(marker: SuccessData, destination: StorePath) -> list[tuple[str, int | None]]:
    lengths: Sequence[int | None] = marker.lengths if marker.lengths is not None else [None] * len(marker.filenames)
    return list(zip(named_uris(marker, destination), lengths, strict=True))


def _own_places(config: CommitterConfig, listed: ListedFiles) -> set[StorePath]:
    texts = (config.summary_report_directory, config.diagnostics_manifest_directory, config.file_list_directory)
    places = {StorePath.of(text) for text in texts if text}
    return places | ({StorePath.from_uri(listed.uri).parent} if listed.uri else set())


def names_manifest_committer_in_vain(marker: SuccessData) -> bool:
    """Returns whether a `_SUCCESS` of Hadoop's manifest committer counts no file.

    With only the committer factory set, tasks of Spark's default commit protocol write straight to the destination;
    the manifest committer finds nothing and reports success (observed with Spark 4.3.0 and ``csv``, ``json``,
    ``text``, ``orc``). A job without output leaves the same. This engine's own reports are excluded.
    """
    committed = files_committed(marker)
    return (
        marker.committer == MANIFEST_COMMITTER
        and _ENGINE not in marker.diagnostics
        and not (committed or marker.filenames)
    )


async def _look_for_written_past(store: Store, destination: StorePath, wrong: Findings) -> None:
    """Reports visible files at a destination whose `_SUCCESS` counts none."""
    files = 0
    first = ""
    async for status in _Tree(store, destination).files(lambda child: is_hidden(child.path.name)):
        if not any(map(is_hidden, status.path.relative_to(destination).split("/"))):
            files += 1
            first = first or status.path.uri
    if files:
        wrong.add(
            f"{destination / SUCCESS}: names the manifest committer with 0 files committed, but {files} files exist "
            f"here, such as {first}: they were there before, or were written past the committer, straight into the "
            "destination"
        )


async def read_marker(store: Store, destination: StorePath, *, operation: str) -> SuccessData:
    """Reads the `_SUCCESS` of a destination: one call. Raises `JobNotFoundError` without one."""
    path = destination / SUCCESS
    try:
        data = await store.read(path, limit=LIMITS["success"])
    except (StoreNotFoundError, StoreIsADirectoryError) as error:
        await check_destination(store, destination, operation)
        raise JobNotFoundError(
            f"there is no {SUCCESS} at {destination}: no job completed there, or one is being committed",
            operation=operation,
            path=path,
            next_step=f"{call('list_jobs', str(destination))} shows jobs that did not end",
        ) from error
    # A rollback on S3 gives an old marker one more blank.
    if not data.strip():
        raise RecordError(
            f"the {SUCCESS} is empty: Hadoop's classic committer leaves such a marker, which names no job and no files",
            path=path,
            operation=operation,
            next_step="nothing can be compared with it; the next job of this engine that commits there writes another",
        )
    try:
        return decode_success(data, source=str(path))
    except RecordError as error:
        error.next_step = (
            f"no file can be compared with this {SUCCESS}: it was damaged, as by a power loss, or another program "
            "wrote it; the next job that commits there writes another"
        )
        raise


@dataclass(frozen=True, slots=True)
class _Tree:
    """The files of a destination that was empty before its job."""

    store: Store
    destination: StorePath
    own: Collection[StorePath] = ()

    async def not_among(self, names: Repeats) -> Findings:
        """Returns files that the job did not write: compared by hashes, with a second listing if some differ."""
        found = Findings()
        async with Repeats() as standing:
            async for uris in self._visible():
                await standing.add(uris)
            unknown, count = await names.lacking(standing, most=MOST_NAMED)
        if unknown:
            async for uris in self._visible():
                for uri in uris:
                    if hash(uri) in unknown:
                        found.add(uri)
        # If some of these are gone by now, the others, which were not listed again, may be gone too.
        if count > len(unknown) and found.count >= len(unknown):
            found.count = count
        return found

    async def _visible(self) -> AsyncIterator[list[str]]:
        """Yields URIs of files that readers see, a thousand at a time: a hidden file is no extra file."""
        uris: list[str] = []
        async for status in self.files(lambda child: is_hidden(child.path.name)):
            if not is_hidden(status.path.name):
                uris.append(status.path.uri)
            if len(uris) == _TOGETHER:
                yield uris
                uris = []
        yield uris

    async def compare_totals(self, marker: SuccessData, names: Container[str], wrong: Findings) -> None:
        """Compares number and bytes, if not all names are known."""
        files = size = hidden = hidden_size = 0
        async for status in self.files(lambda child: is_reserved(child.path.name) and child.path.uri not in names):
            # Hidden names in the destination itself count as all the job's, or as all another's.
            name = status.path.relative_to(self.destination).partition("/")[0]
            if is_hidden(name) and status.path.uri not in names:
                hidden += 1
                hidden_size += status.size
                continue
            files += 1
            size += status.size
            if status.is_link or status.is_special:
                wrong.add(f"{status.path.uri}: is {'a link' if status.is_link else 'no regular file'}")
        committed = files_committed(marker)
        total = marker.statistics().counters.get(event_names.COMMITTER_BYTES_COMMITTED, 0)
        if (committed, total) not in ((files, size), (files + hidden, size + hidden_size)):
            wrong.add(
                f"{self.destination}: holds {files} files of {size} bytes, {committed} of {total} bytes were committed"
            )

    async def files(self, is_passed_over: Callable[[FileStatus], bool]) -> AsyncIterator[FileStatus]:
        """Yields every output file, without directories of jobs, places of reports, and children that are skipped."""
        async for child in self.store.list(self.destination):
            if is_passed_over(child):
                continue
            if not stands_as_directory(child):
                if self._is_output(child):
                    yield child
                continue
            async for status in walk(self.store, child.path):
                if not stands_as_directory(status) and self._is_output(status):
                    yield status

    def _is_output(self, status: FileStatus) -> bool:
        name = status.path.relative_to(self.destination)
        return not (working_directory_in(name) or any(map(status.path.is_under, self.own)))


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
        marker = await _read_winners(store, destination)
        named = await _named(store, destination, marker, config)
        roots = JobLayout(destination, "any", roots=config.absolute_roots).roots
        found = sorted(((_inside(destination, roots, uri), size) for uri, size in named), key=lambda file: file[0])
        files = await _looked_at(store, destination, found, check=check, workers=config.io_concurrency)
    return Winners(job_id=marker.jobId, committer=marker.committer, files=files)


async def _read_winners(store: Store, destination: StorePath) -> SuccessData:
    try:
        marker = await read_marker(store, destination, operation=_OPERATION)
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
    committed, named = files_committed(marker), _named_files(marker, destination)
    if len(named) == committed:
        return named
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
