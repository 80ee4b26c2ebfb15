"""Setting a job up under a name that no setup had that may have been ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import msgspec

from committer.errors import ConfigurationError, JobExistsError, StoreOutcomeUnknownError
from committer.file_names import root_of
from committer.layout import JobLayout
from committer.spec import JobSpec
from committer.stages.base import StageContext
from committer.stages.setup_job import SetupJob

_TRIES: Final = 5


async def set_up(
    context: StageContext,
    make: Callable[[StageContext], SetupJob],
    known_as: Callable[[StageContext, JobSpec], StageContext],
) -> StageContext:
    """Runs `SetupJob`; under another name of the setup where it gave up one whose record may have stood.

    A cleanup may have found that record, and stand still before it deletes what it found. It tells setups apart by
    their names, and would delete what stands under the same one.

    A job that keeps its outcome is set up under the same name all the same. A record of another name that comes late
    beside that outcome would be taken for that of a job that was set up since, and the outcome be removed; a stream
    would publish its batch a second time. For that one late request is enough. The other takes two cleanups besides.

    Args:
        context: The job.
        make: Makes the stage.
        known_as: Makes the context of the same job, of which more is known.

    Returns:
        The job as it was set up.

    Raises:
        ConfigurationError: `superseded_directories` names a directory outside the destination and all roots.
    """
    _refuse_superseded_directories(context.layout, context.config.superseded_directories)
    given_up: list[SetupJob] = []
    for tries_left in reversed(range(_TRIES)):
        stage = make(context)
        try:
            identity = await stage.run(None)
        except StoreOutcomeUnknownError:
            if not (tries_left and stage.given_up):
                raise
            given_up.append(stage)
        except JobExistsError:
            # What stands there may be a record that was given up, and came late.
            if not (tries_left and await _take_back(given_up)):
                raise
        else:
            return replace(context, setup_identity=identity, proved=True)
        if not context.config.outcome_kept:
            context = known_as(context, msgspec.structs.replace(context.spec, setup=context.runtime.nonce()))
    raise AssertionError(given_up)


async def _take_back(given_up: list[SetupJob]) -> bool:
    for stage in given_up:
        if await stage.take_back():
            return True
    return False


def _refuse_superseded_directories(layout: JobLayout, names: Iterable[str]) -> None:
    for name in names:
        if name.startswith("/") and root_of(f"{name}/", layout.roots) is None:
            raise ConfigurationError(
                f"superseded_directories: {layout.target(name)} lies outside the destination {layout.destination}, and"
                " below none of absolute_roots",
                operation="open_job",
                path=layout.target(name),
                next_step="add a directory above it to absolute_roots, or remove it from superseded_directories",
            )
