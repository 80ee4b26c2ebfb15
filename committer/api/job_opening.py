"""Opens a job in its driver: sets up a new one, or joins an existing one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from committer.advice import call
from committer.api.job import Job
from committer.committers.advising import advising, shown_options
from committer.committers.context import open_context, refuse_place_of_jobs
from committer.committers.find_job import find_job, find_setup
from committer.committers.opened_store import closed_on_failure, is_owned
from committer.committers.registry import committer_for, default_committer
from committer.committers.reports import refuse_unwritable_list, refuse_unwritable_places
from committer.errors import ConfigurationError
from committer.events import Listener
from committer.events.display import watched
from committer.flow.misuse import Opening
from committer.flow.runtime import current_runtime
from committer.layout import check_job_id
from committer.logs import job_logger
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.paths import Destination, StorePath
from committer.spec import Delivery, JobSpec
from committer.stages.setup.setup_job import SETUP_BYTES
from committer.stores.registry import find_store

_log = job_logger("committer.job")


def open_job(
    dest: Destination,
    *,
    job_id: str | None = None,
    committer: str | None = None,
    delivery: Delivery = "listing",
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
    listeners: Iterable[Listener] = (),
) -> Opening[Job]:
    """Sets a job up; ``async with committer.open_job(dest) as job: ...`` commits it on a clean exit, else aborts it.

    ``job = await committer.open_job(dest)`` only sets it up; then ``await job.close()`` frees resources and
    decides nothing.

    Args:
        dest: The directory to write to: a URI, or a path of this machine (``~`` is the home directory). Created
            if missing.
        job_id: 1 to 128 of ``A-Z a-z 0-9 . _ -``; a UUID when None.
        committer: The committer's name; the store's default when None: ``magic`` on S3, else ``manifest``.
        delivery: How the driver learns of task commits: ``listing``; or ``message`` for engines whose tasks
            return values, whose commit then names the winners.
        config: The job's options: a `CommitterConfig`, or a mapping by field, as every function takes them.
        storage_options: Options of the store.
        progress: True shows a bar with rate and time left in a terminal or a notebook, elsewhere a line every five
            seconds, on standard error; a callable gets each event, on the event loop, and must return at once.
        listeners: Called with each event of the job's progress. With these or `progress`, one listing every
            five seconds counts the committed tasks until the job ends or is closed.

    Raises:
        JobExistsError: The id is in use at this destination.
        UnsupportedError: The store cannot do what the committer needs.
        InvalidPathError: The destination is inside a directory where other jobs work.
        ConfigurationError: An argument cannot be honoured, or a report that `config` asks for cannot be written.
    """
    if delivery not in ("listing", "message"):
        raise ConfigurationError(
            f"delivery is 'listing' or 'message', not {delivery!r}",
            operation="open_job",
            next_step="leave it out: then the driver lists what its tasks committed",
        )
    told, display = watched(progress, listeners)
    destination, choices = StorePath.of(dest), config_of(config)
    if committer is not None:
        committer_for(committer)

    async def make() -> Job:
        refuse_place_of_jobs(destination)
        reached = shown_options(destination, storage_options)
        async with closed_on_failure(display):
            store, owned = await find_store(destination, storage_options), is_owned(storage_options)
            async with closed_on_failure(store, owned=owned):
                chosen = committer_for(committer or default_committer(store.capabilities))
                chosen_config = chosen.choices(choices or CommitterConfig())
                if store.capabilities.deletes_by_name:
                    chosen_config = chosen_config.replace(unique_names=True)
                spec = chosen.settle(
                    JobSpec(
                        destination=destination.uri,
                        job_id=check_job_id(job_id if job_id is not None else current_runtime().uuid()),
                        committer=chosen.name,
                        delivery=delivery,
                        config=chosen_config,
                        setup=current_runtime().nonce(SETUP_BYTES),
                    )
                )
                refuse_unwritable_list(spec.config)
                context = await open_context(spec, store, owned=owned, listeners=told)
            async with closed_on_failure(context.store):
                await refuse_unwritable_places(context)
                with advising(lambda: reached):
                    context = await chosen.setup_job(context)
        _log.info(
            "job %s is open at %s: committer %s, task commits by %s",
            spec.job_id,
            spec.destination,
            spec.committer,
            spec.delivery,
            extra={"job": spec.job_id},
        )
        return Job(context, attached=False, display=display, reached=reached)

    return Opening(make, "open_job")


def attach_job(
    job: JobSpec | Destination,
    *,
    job_id: str | None = None,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
    listeners: Iterable[Listener] = (),
) -> Opening[Job]:
    """Joins a job that was set up before, by this engine or by Hadoop. Leaving its block only closes it.

    Args:
        job: Its spec, or its destination together with `job_id`.
        config: The places of reports and kept records, `absolute_roots`, and the rate of calls from this
            process; all other options are those of the setup. For a job that Hadoop set up, all options.
        progress: As for `open_job`; so are `listeners`.

    Raises:
        JobNotFoundError: There is no such job, or it is over.
    """
    choices = config_of(config)
    told, display = watched(progress, listeners)
    if isinstance(job, JobSpec):
        known, destination, wanted = job, StorePath.from_uri(job.destination), job.job_id
    else:
        if job_id is None:
            raise ConfigurationError(
                "attach_job needs a JobSpec, or a destination and job_id",
                operation="attach_job",
                path=job,
                next_step=f"{call('attach_job', str(job), job_id='ID')}, or attach_job(spec); "
                f"{call('list_jobs', str(job))} shows the ids that are there",
            )
        known, destination, wanted = None, StorePath.of(job), job_id

    async def make() -> Job:
        reached = shown_options(destination, storage_options)
        async with closed_on_failure(display):
            store, owned = await find_store(destination, storage_options), is_owned(storage_options)
            with advising(lambda: reached):
                async with closed_on_failure(store, owned=owned):
                    if known is not None and known.hadoop:
                        spec = known if choices is None else msgspec.structs.replace(known, config=choices)
                    elif known is not None:
                        given = choices if choices is not None else known.config
                        spec = await find_setup(store, known, config=given)
                    else:
                        spec = await find_job(store, destination, wanted, config=choices)
                    context = await open_context(spec, store, owned=owned, listeners=told)
                if spec.hadoop:
                    # The setup record of every other job was just read.
                    async with closed_on_failure(context.store):
                        context = await committer_for(context.spec.committer).join_hadoop(context)
        _log.debug("job %s at %s is joined", wanted, destination.uri, extra={"job": wanted})
        return Job(context, attached=True, display=display, reached=reached)

    return Opening(make, "attach_job")
