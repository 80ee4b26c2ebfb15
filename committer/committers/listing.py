"""The complete list of a job's committed files: written when the job ends, found again from a report."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, NamedTuple

from committer.committers.opened_store import store_beside
from committer.errors import CommitterError, ConfigurationError, InvalidPathError
from committer.file_names import reserved_part
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.logs import job_logger
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.records.file_list import check_format
from committer.records.success import SuccessData
from committer.stages.base import StageContext
from committer.stages.decide.commit_state import CommitState
from committer.stages.finish.file_list import (
    FILE_LIST,
    FILE_LIST_PROBLEM,
    SaveFileList,
    first_part,
    list_named,
)
from committer.stores.base import Store
from committer.stores.helpers import exists

_log = job_logger("committer.committers")

_REPORT_PLACES: Final = ("summary_report_directory", "file_list_directory")


def refuse_unwritable_list(config: CommitterConfig) -> None:
    """Refuses a Parquet list if pyarrow is missing."""
    if config.file_list_directory:
        check_format(config.file_list_format)


async def refuse_unwritable_places(context: StageContext) -> None:
    """Refuses a job whose summary report or file list cannot be written: 3 calls a directory, for an empty file."""
    config = context.config
    asked = {text: name for name in _REPORT_PLACES if (text := getattr(config, name))}
    for text, name in asked.items():
        try:
            directory = StorePath.of(text)
            if reserved_part(directory.path) >= 0:
                raise InvalidPathError(
                    "it lies in a directory that commits own", path=directory, next_step="name one outside of these"
                )
            async with store_of(context, directory) as store:
                await store.make_directory(directory, parents=True)
                await _try_to_write(store, directory / f".committer-{context.driver}")
        except CommitterError as error:
            raise ConfigurationError(
                f"{name}={text!r} cannot be written to: {error.message}",
                operation="open_job",
                path=error.path or text,
                next_step=f"name a directory that can be written to, or leave {name} out"
                + (f"; {error.next_step}" if error.next_step else ""),
            ) from error


async def _try_to_write(store: Store, probe: StorePath) -> None:
    async def delete() -> None:
        # A user may be allowed to write there, but not to delete.
        with suppress(CommitterError):
            await store.delete_file(probe)

    try:
        await store.put(probe, b"")
    finally:
        await run_shielded(delete, bound_s=UNDO_BOUND_S)


class KeptList(NamedTuple):
    """The URI of the list's first part, or why there is none although one was asked for."""

    uri: str = ""
    problem: str = ""

    @property
    def diagnostics(self) -> dict[str, str]:
        """The non-empty fields, for `_SUCCESS` and the summary."""
        told = {FILE_LIST: self.uri, FILE_LIST_PROBLEM: self.problem}
        return {name: text for name, text in told.items() if text}


async def keep_list(context: StageContext, state: CommitState, *, fresh: bool) -> KeptList:
    """Writes the job's list, or if not `fresh` finds another driver's; never raises a `CommitterError`."""
    config, layout = context.config, context.layout
    if not config.file_list_directory:
        return KeptList()
    try:
        directory = StorePath.of(config.file_list_directory)
        first = first_part(directory, layout, config.file_list_format)
        async with store_of(context, directory) as store:
            try:
                if fresh:
                    expected = (state.decision.files, state.decision.size)
                    saving = SaveFileList(context, store=store, directory=directory, expected=expected)
                    return KeptList((await saving.run(state.files)).uri)
            except CommitterError:
                # Another driver of the job may have ended it meanwhile, and written the same list.
                if await exists(context.store, layout.decision) or not await exists(store, first):
                    raise
            return KeptList(first.uri if await exists(store, first) else "")
    except CommitterError as error:
        _log.warning("could not keep the list of what job %s committed: %s", layout.job_id, error)
        return KeptList(problem=str(error))


def list_told(context: StageContext, record: SuccessData) -> KeptList:
    """Reads the list's URI from a `_SUCCESS` or summary, as far as the record is trusted (G10)."""
    told = record.diagnostics.get(FILE_LIST, "")
    layout = context.layout
    path = list_named(told, layout.job_id, layout.destination, context.config.file_list_directory)
    return KeptList(path.uri if path is not None else "", record.diagnostics.get(FILE_LIST_PROBLEM, ""))


def store_of(context: StageContext, directory: StorePath) -> AbstractAsyncContextManager[Store]:
    """Yields the store of a directory that the caller named for a block: the job's, or another one that it opens."""
    return store_beside(context.store, context.layout.destination, directory, context.config)
