"""Builds the context that a job's stages share: the paced and counted store, the layout, the listeners."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from committer.committers.opened_store import paced
from committer.committers.registry import committer_for, suited_committer
from committer.errors import ConfigurationError, InvalidPathError
from committer.events import Listener, Progress, Statistics
from committer.file_names import reserved_part, working_directory_in
from committer.flow.runtime import current_runtime
from committer.layout import JobLayout
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.spec import JobSpec
from committer.stages.base import StageContext
from committer.stages.names import NameFolding, is_hidden
from committer.stages.setup.setup_job import check_store
from committer.stores.base import Store


async def open_context(spec: JobSpec, store: Store, *, owned: bool, listeners: Iterable[Listener] = ()) -> StageContext:
    """Builds the context of one job in this process and checks its paths; no store call.

    `store` has no limits yet; `owned` tells whether closing the context's store closes it.
    """
    if not spec.committer:
        spec = msgspec.structs.replace(spec, committer=suited_committer(store).name)
    committer = committer_for(spec.committer)
    layout = committer.layout(spec)
    _refuse_root_of_a_disk(layout.destination)
    _check_report_places(spec.config, layout)
    statistics = Statistics()
    _check_roots(layout, NameFolding(store.capabilities))
    context = StageContext(
        spec=spec,
        layout=layout,
        listed_layout=suited_committer(store).listed_layout,
        forms=committer.forms(spec),
        store=paced(store, spec.config, statistics, owned=owned),
        statistics=statistics,
        progress=Progress(spec.job_id, listeners),
        driver=current_runtime().nonce(),
        config=spec.config,
    )
    if spec.hadoop:
        # `SetupJob` checks every other job.
        check_store(context, committer.needs, operation="open_job")
    return context


def _refuse_root_of_a_disk(destination: StorePath) -> None:
    """Refuses ``/`` and ``file:///``, which an empty variable makes of ``f"{base}/"``. A bucket's root is allowed."""
    if destination.path == "/" and not destination.authority:
        raise InvalidPathError(
            "the root of a disk is no destination: everything on it would count as the job's output",
            operation="open_job",
            path=destination,
            next_step="name a directory below it",
        )


def refuse_place_of_jobs(destination: StorePath) -> None:
    """Refuses a destination inside a working directory of other jobs, or below a job's `_SUCCESS` marker."""
    at = reserved_part(destination.path)
    if at >= 0:
        segment = destination.path[at + 1 :].partition("/")[0]
        above = StorePath(destination.scheme, destination.authority, destination.path[:at] or "/")
        raise InvalidPathError(
            f"the destination lies in {segment}, which the jobs at {above} own; they delete files there",
            operation="open_job",
            path=destination,
            next_step=f"write to {above}, or to another directory",
        )


def _check_report_places(config: CommitterConfig, layout: JobLayout) -> None:
    places = {
        "summary_report_directory": (config.summary_report_directory, ""),
        "diagnostics_manifest_directory": (config.diagnostics_manifest_directory, layout.unique_name),
        "file_list_directory": (config.file_list_directory, ""),
        "pending_set_directory": (config.pending_set_directory, ""),
    }
    for name, (text, below) in places.items():
        if not text:
            continue
        try:
            directory = StorePath.of(text)
        except InvalidPathError:
            # `refuse_unwritable_places` refuses it when a job is opened; a recovery continues without the report.
            continue
        place = directory / below if below else directory
        if place == layout.destination or (place.is_under(layout.destination) and _is_visible(place, layout)):
            raise ConfigurationError(
                f"{name}={text!r} would put files among the output of the job, or into a job's directory",
                operation="open_job",
                path=place,
                next_step="choose a directory elsewhere, or one whose name starts with an underscore",
            )


def _check_roots(layout: JobLayout, folding: NameFolding) -> None:
    destination = f"{folding.fold(layout.destination.path).rstrip('/')}/"
    for root in sorted(layout.roots):
        folded = f"{folding.fold(root).rstrip('/')}/"
        if folded == "/":
            problem = "is the whole store"
        elif destination.startswith(folded):
            problem = f"holds the destination {layout.destination}"
        elif folded.startswith(destination):
            problem = f"lies in the destination {layout.destination}, where task.open writes"
        elif reserved_part(root) >= 0:
            problem = "lies in a directory that commits own"
        else:
            continue
        raise ConfigurationError(
            f"absolute_roots: {layout.target(root)} {problem}",
            operation="open_job",
            path=layout.target(root),
            next_step="name directories beside the destination that hold nothing but what the job may write to",
        )


def _is_visible(place: StorePath, layout: JobLayout) -> bool:
    name = place.relative_to(layout.destination)
    return bool(working_directory_in(name)) or not is_hidden(name.partition("/")[0])
