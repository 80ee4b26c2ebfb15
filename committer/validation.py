"""validate: compares a destination with what its `_SUCCESS` says."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from committer.committers.context import open_store
from committer.config import CommitterConfig
from committer.errors import JobNotFoundError, StoreIsADirectoryError, StoreNotFoundError
from committer.events import names
from committer.flow.workers import run_workers
from committer.layout import SUCCESS, JobLayout
from committer.paths import StorePath, is_reserved, root_of
from committer.records.success import SuccessData, decode_success
from committer.stages.identity import stands_as_directory
from committer.stages.names import is_hidden
from committer.stages.success_file import COMMITTER_CLASS, WAS_EMPTY, files_committed, named_uris
from committer.stores.base import Store
from committer.stores.helpers import walk

# Only this engine's reports have it among their diagnostics.
_ENGINE = "committer.engine"


class ValidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a destination compares with its `_SUCCESS`.

    Attributes:
        ok: Whether nothing is missing, wrong or extra.
        missing: URIs of files that `_SUCCESS` names and that are not there.
        wrong: What is there but not as recorded, with the reason.
        extra: URIs of files that the job did not write. Known only when the destination was empty before it.
        job_id: The job that `_SUCCESS` speaks of.
        files: Files that were compared.
        complete: Whether every file of the job could be compared: `_SUCCESS` names at most a hundred.
    """

    ok: bool
    missing: list[str]
    wrong: list[str]
    extra: list[str]
    job_id: str = ""
    files: int = 0
    complete: bool = True


async def validate(
    dest: str | os.PathLike[str] | StorePath,
    *,
    storage_options: Mapping[str, object] | None = None,
    config: CommitterConfig | None = None,
) -> ValidationReport:
    """Compares a destination with its `_SUCCESS`: names, lengths, and in a destination that was empty, totals.

    One look a file that `_SUCCESS` names (at most a hundred), outside the destination only below one of
    `config.absolute_roots`. When the destination was empty before the job (and nothing went elsewhere), also one
    listing a directory, which finds what `_SUCCESS` has no room to name by number and bytes.

    Of a `_SUCCESS` that names Hadoop's manifest committer with no file committed, the files that stand there all the
    same are reported as wrong: it vouches for none of them (see `names_manifest_committer_in_vain`).

    Raises:
        JobNotFoundError: There is no `_SUCCESS`.
        RecordError: It cannot be read; an empty one was written by a committer that reports nothing.
    """
    destination = StorePath.of(dest)
    config = config or CommitterConfig()
    store = await open_store(destination, storage_options, config)
    try:
        marker = await _marker(store, destination, config)
        missing, wrong = await _compare_named(store, destination, marker, config)
        extra: list[str] = []
        committed = files_committed(marker)
        complete = committed <= len(marker.filenames)
        if marker.diagnostics.get(WAS_EMPTY) == "true":
            extra = await _compare_tree(store, destination, marker, committed, wrong, complete=complete)
            complete = True
        elif names_manifest_committer_in_vain(marker):
            wrong += await _written_past(store, destination)
        return ValidationReport(
            ok=not (missing or wrong or extra),
            missing=sorted(missing),
            wrong=sorted(wrong),
            extra=sorted(extra),
            job_id=marker.jobId,
            files=committed if complete else len(marker.filenames),
            complete=complete,
        )
    finally:
        await store.close()


def names_manifest_committer_in_vain(marker: SuccessData) -> bool:
    """Whether a `_SUCCESS` names Hadoop's manifest committer, and that committed nothing.

    With only the committer factory set, Spark's default commit protocol has its tasks write straight into the
    destination; the manifest committer runs beside it, finds nothing and reports success (observed with Spark 4.3.0
    and ``csv``, ``json``, ``text``, ``orc``). A job that had nothing to write leaves the same. This engine's own
    reports are never meant: its tasks write nowhere else.
    """
    committed = files_committed(marker)
    return (
        marker.committer == COMMITTER_CLASS
        and _ENGINE not in marker.diagnostics
        and not (committed or marker.filenames)
    )


async def _written_past(store: Store, destination: StorePath) -> list[str]:
    """A sentence when visible files stand at a destination whose `_SUCCESS` counts none."""
    files = 0
    first = ""
    async for child in store.list(destination):
        if is_hidden(child.path.name):
            continue
        found = [status async for status in walk(store, child.path)] if stands_as_directory(child) else [child]
        for status in found:
            segments = status.path.relative_to(destination).split("/")
            if not (stands_as_directory(status) or any(map(is_hidden, segments))):
                files += 1
                first = first or status.path.uri
    if not files:
        return []
    sentence = (
        f"{destination / SUCCESS}: names the manifest committer with 0 files committed, but {files} files stand here, "
        f"such as {first}: they were there before, or were written past the committer, straight into the destination"
    )
    return [sentence]


async def _marker(store: Store, destination: StorePath, config: CommitterConfig) -> SuccessData:
    path = destination / SUCCESS
    try:
        data = await store.read(path, limit=config.record_size_limit)
    except (StoreNotFoundError, StoreIsADirectoryError) as error:
        raise JobNotFoundError(
            f"there is no {SUCCESS} at {destination}: no job completed there, or one is being committed",
            operation="validate",
            path=path,
            next_step="list_jobs(destination) shows jobs that did not end",
        ) from error
    return decode_success(data, source=str(path))


async def _compare_named(
    store: Store, destination: StorePath, marker: SuccessData, config: CommitterConfig
) -> tuple[list[str], list[str]]:
    missing: list[str] = []
    wrong: list[str] = []
    roots = JobLayout(destination, marker.jobId, roots=config.absolute_roots).roots
    uris = named_uris(marker, destination)

    async def look(number: int) -> None:
        uri = marker.filenames[number]
        path = StorePath.from_uri(uris[number])
        outside = (path.scheme, path.authority) != (destination.scheme, destination.authority)
        if outside or not (path.is_under(destination) or root_of(path.path, roots)):
            hint = "" if outside else "; if the job may have written there, give absolute_roots"
            wrong.append(f"{uri}: lies outside the destination{hint}")
            return
        try:
            status = await store.status(path)
        except StoreNotFoundError:
            missing.append(uri)
            return
        if status.is_link:
            wrong.append(f"{uri}: is a link")
        elif status.is_directory:
            wrong.append(f"{uri}: is a directory")
        elif status.is_special:
            wrong.append(f"{uri}: is a pipe, a socket or a device")
        elif marker.lengths is not None and status.size != marker.lengths[number]:
            wrong.append(f"{uri}: has {status.size} bytes, {marker.lengths[number]} were committed")

    await run_workers(range(len(marker.filenames)), look, workers=config.io_concurrency, operation="validate")
    return missing, wrong


async def _compare_tree(
    store: Store,
    destination: StorePath,
    marker: SuccessData,
    committed: int,
    wrong: list[str],
    *,
    complete: bool,
) -> list[str]:
    named = set(named_uris(marker, destination))
    files = size = 0
    extra: list[str] = []
    async for child in store.list(destination):
        name = child.path.name
        if is_hidden(name) and child.path.uri not in named and (is_reserved(name) or not child.is_directory):
            continue
        found = (
            [status async for status in walk(store, child.path) if not stands_as_directory(status)]
            if stands_as_directory(child)
            else [child]
        )
        for status in found:
            if is_hidden(status.path.name) and status.path.uri not in named and complete:
                continue
            files += 1
            size += status.size
            if not complete and (status.is_link or status.is_special):
                wrong.append(f"{status.path.uri}: is {'a link' if status.is_link else 'no regular file'}")
            if complete and status.path.uri not in named:
                extra.append(status.path.uri)
    if not complete:
        total = marker.statistics().counters.get(names.COMMITTER_BYTES_COMMITTED, 0)
        if (files, size) != (committed, total):
            wrong.append(
                f"{destination}: holds {files} files of {size} bytes, {committed} of {total} bytes were committed"
            )
    return extra
