"""Making the context that a job's stages share: its store, paced and counted, and who listens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

import msgspec

from committer.advice import call
from committer.committers.base import committer_for, default_committer
from committer.config import CommitterConfig
from committer.errors import (
    ConfigurationError,
    InvalidPathError,
    JobNotFoundError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.events import Listener, Progress, Statistics
from committer.flow.pacing import Claim, Weights, claim_limits
from committer.flow.retry import DEFAULT_POLICY
from committer.flow.runtime import current_runtime
from committer.flow.together import both
from committer.layout import JobLayout, check_job_id
from committer.paths import StorePath, has_reserved_segment, root_of, working_directory_in
from committer.records.job_state import JobSetup
from committer.spec import JobSpec
from committer.stages.base import StageContext
from committer.stages.job_directory import find_magic_attempt, is_hadoops, look_at_job, read_setup
from committer.stages.names import NameFolding, is_hidden
from committer.stages.setup_job import check_store
from committer.stores.base import Store
from committer.stores.paced import PacedStore
from committer.stores.registry import find_store


def paced(
    store: Store, config: CommitterConfig, statistics: Statistics, *, owned: bool, claim: Claim | None = None
) -> PacedStore:
    """Wraps a store: limits shared by all jobs of the process on its endpoint, counts kept for one job or task.

    Args:
        store: The store.
        config: Says which limits to ask for, and what calls cost.
        statistics: Where calls are counted.
        owned: Whether closing it closes the store.
        claim: The limits that were asked for already, for another view of the same opened store.
    """
    if claim is None:
        rate = config.io_rate_for(store.scheme, store.capabilities.default_io_rate)
        claim = claim_limits(store.endpoint, concurrency=config.io_concurrency, rate=rate or None)
    return PacedStore(
        store,
        pacer=claim.pacer,
        claim=claim,
        statistics=statistics,
        retry_policy=DEFAULT_POLICY,
        owned=owned,
        weights=Weights(config.io_read_weight, config.io_write_weight, config.io_delete_weight),
    )


async def open_store(
    path: StorePath, storage_options: Mapping[str, object] | None = None, config: CommitterConfig | None = None
) -> PacedStore:
    """The store of a path, with limits and retries, for work that belongs to no job; no store call."""
    store = await find_store(path, storage_options)
    return paced(store, config or CommitterConfig(), Statistics(), owned=_owned(storage_options))


def _owned(storage_options: Mapping[str, object] | None) -> bool:
    """Whether a store is opened for this use alone, not a live one that the user gave."""
    return "store" not in (storage_options or {})


async def open_context(
    spec: JobSpec,
    storage_options: Mapping[str, object] | None,
    listeners: Iterable[Listener] = (),
) -> StageContext:
    """The context of one job in this process; no store call.

    Raises:
        ConfigurationError: Reports or kept records would lie among the job's output, or in `_temporary`; or a root
            outside the destination holds it, or lies in it.
        InvalidPathError: The destination is the root of a disk; or a root of the job is relative, or of another store.
        UnsupportedError: The job is Hadoop's, and of a committer that the store cannot serve.
    """
    layout = spec.layout
    _refuse_root_of_a_disk(layout.destination)
    _check_report_places(spec.config, layout)
    statistics = Statistics()
    store = await find_store(layout.destination, storage_options)
    _check_roots(layout, NameFolding(store.capabilities))
    context = StageContext(
        spec=spec,
        layout=layout,
        store=paced(store, spec.config, statistics, owned=_owned(storage_options)),
        statistics=statistics,
        progress=Progress(spec.job_id, listeners),
        driver=current_runtime().nonce(),
        config=spec.config,
    )
    if spec.hadoop:
        # Of every other job its setup did.
        check_store(context, committer_for(spec.committer).needs, operation="open_job")
    return context


def _refuse_root_of_a_disk(destination: StorePath) -> None:
    """Refuses ``/`` and ``file:///``: what an empty variable makes of ``f"{base}/"``. The root of a bucket is a place.

    Raises:
        InvalidPathError: It is one.
    """
    if destination.path == "/" and not destination.authority:
        raise InvalidPathError(
            "the root of a disk is no destination: everything on it would count as the job's output",
            operation="open_job",
            path=destination,
            next_step="name a directory below it",
        )


def _check_report_places(config: CommitterConfig, layout: JobLayout) -> None:
    places = {
        "summary_report_directory": (config.summary_report_directory, ""),
        "diagnostics_manifest_directory": (config.diagnostics_manifest_directory, layout.unique_name),
        "file_list_directory": (config.file_list_directory, ""),
    }
    for name, (text, below) in places.items():
        if not text:
            continue
        try:
            directory = StorePath.of(text)
        except InvalidPathError:
            # Never the reason for a job to fail: it is said when the report cannot be saved.
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
        elif has_reserved_segment(root):
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


def fresh_statistics(context: StageContext) -> StageContext:
    """The same job with counts of its own: for a task attempt, or a second call."""
    statistics = Statistics()
    store = cast("PacedStore", context.store)
    fresh = paced(store.inner, context.config, statistics, owned=store.owned, claim=store.claim)
    return replace(context, store=fresh, statistics=statistics)


async def default_committer_of(path: StorePath, storage_options: Mapping[str, object] | None = None) -> str:
    """The committer that suits the store of a path; no store call."""
    return default_committer((await find_store(path, storage_options)).capabilities)


def layout_for(store: Store, dest: StorePath, job_id: str) -> JobLayout:
    """Where a job lives of which nothing else is known: it may be one of Hadoop's magic committer where files wait in
    uploads.
    """
    return JobLayout(dest, job_id, pending_sets=default_committer(store.capabilities) == "magic")


async def find_job(
    dest: StorePath,
    job_id: str,
    *,
    config: CommitterConfig | None,
    storage_options: Mapping[str, object] | None,
) -> tuple[JobSpec, str | None]:
    """Rebuilds the spec of a job that stands, from its setup record: 2 calls. With it `StageContext.setup_identity`.

    `config` says where reports and kept records go, and where outside the destination files may; for a job without
    setup record it holds altogether.

    A job without one was set up by Hadoop, or is half cleaned up; then its highest job attempt is taken. Where writes
    make directories again, a task that writes after its job was cleaned up looks almost the same: there another record
    makes a job, or a task attempt of Hadoop's (1 call more), and where directories are not real a record alone: this
    engine's, or a pending set that a task of Hadoop's left (2 calls more).

    Raises:
        JobNotFoundError: There is no such job.
    """
    check_job_id(job_id)
    store = await open_store(dest, storage_options, config)
    try:
        layout = layout_for(store, dest, job_id)
        found, setup = await both(look_at_job(store, layout), _setup_or_none(store, layout))
        while setup is None and found.set_up:
            # It was made between the two; or its job is being cleaned up, and what else was listed is gone by now.
            found = await look_at_job(store, layout)
            setup = await _setup_or_none(store, layout)
        if setup is not None:
            late = not store.capabilities.refuses_late_writes
            record = found.children.get("setup") if late else None
            return _at(dest, job_id, setup.spec, config), record.identity if record is not None else None
        attempts = [int(name) for name, child in found.children.items() if child.is_directory and name.isdecimal()]
        job_attempt = max(attempts, default=0)
        magic_attempt = await find_magic_attempt(store, layout) if found.magic else None
        if magic_attempt is not None:
            return JobSpec.for_hadoop(dest, job_id, magic_attempt, config=config, committer="magic"), None
        # An empty directory is what a setup makes first: the job that will stand there in a moment is not Hadoop's.
        if not (found.has_records or (attempts and await is_hadoops(store, JobLayout(dest, job_id, job_attempt)))):
            raise JobNotFoundError(
                f"there is no job {job_id} at {dest}: no record speaks of one, and no task attempt of Hadoop's",
                operation="find_job",
                path=layout.job_directory,
                next_step="it was cleaned up; if Hadoop set it up, `job = await committer.attach_job("
                f"committer.JobSpec.for_hadoop({str(dest)!r}, {job_id!r}))` joins it",
            )
        spec = JobSpec.for_hadoop(dest, job_id, job_attempt, config=config)
        return msgspec.structs.replace(spec, committer=default_committer(store.capabilities)), None
    finally:
        await store.close()


async def _setup_or_none(store: Store, layout: JobLayout) -> JobSetup | None:
    try:
        return await read_setup(store, layout)
    except (StoreNotFoundError, StoreNotADirectoryError):
        return None


def trusted_config(stored: CommitterConfig, given: CommitterConfig | None) -> CommitterConfig:
    """Choices as a record holds them, but for places outside the destination: those only the caller may name (G10).

    The rate is the calling process's, too, where the caller gives one: what a store bears may have changed since.
    """
    paced_by = stored if given is None or (given.io_rate, given.azure_io_rate) == (None, None) else given
    return msgspec.structs.replace(
        stored,
        io_rate=paced_by.io_rate,
        azure_io_rate=paced_by.azure_io_rate,
        absolute_roots=given.absolute_roots if given is not None else (),
        summary_report_directory=given.summary_report_directory if given is not None else "",
        diagnostics_manifest_directory=given.diagnostics_manifest_directory if given is not None else "",
        file_list_directory=given.file_list_directory if given is not None else "",
        file_list_format=given.file_list_format if given is not None else stored.file_list_format,
    )


def refuse_roots_not_given(
    layout: JobLayout, stored: CommitterConfig, *, rollback: bool = False, force: bool = False
) -> None:
    """Refuses to go on with a job that publishes outside its destination where the caller did not say it may (G10).

    Args:
        layout: The job, with the roots that the caller gave.
        stored: What the decision says: the roots that are written to.
        rollback: The job is to be taken back, not finished; so is the advice.
        force: As the caller of `recover` said.

    Raises:
        ConfigurationError: One of them lies below none that was given. Nothing was changed.
    """
    missing = [root for root in stored.absolute_roots if not _is_given(layout, root)]
    if missing:
        recover = call(
            "recover",
            str(layout.destination),
            layout.job_id,
            rollback=rollback,
            force=force,
            config={"absolute_roots": list(stored.absolute_roots)},
        )
        raise ConfigurationError(
            f"job {layout.job_id} publishes files outside its destination, and a caller that goes on with it must "
            f"say that it may write below {', '.join(missing)}",
            operation="commit_job",
            path=layout.decision,
            next_step=f"if that is right, call {recover}; nothing was changed",
        )


def _is_given(layout: JobLayout, root: str) -> bool:
    try:
        return root_of(f"{layout.absolute(root)}/", layout.roots) is not None
    except InvalidPathError:
        return False


def _at(dest: StorePath, job_id: str, spec: JobSpec, config: CommitterConfig | None) -> JobSpec:
    # A setup record is as untrusted as any other (G10): where it lies says which job it is, not what it says.
    return msgspec.structs.replace(
        spec, destination=dest.uri, job_id=job_id, config=trusted_config(spec.config, config)
    )
