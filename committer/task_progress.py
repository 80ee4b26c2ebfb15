"""Progress of an open job: how many of its tasks committed, in this process and in others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from committer.audit import audit
from committer.committers.fresh import fresh_statistics
from committer.committers.registry import committer_for
from committer.logs import job_logger
from committer.stages.base import StageContext

_log = job_logger("committer.job")

LISTING_INTERVAL_S: Final = 5.0

# A listing of a hundred thousand records takes seconds: at most a twentieth of the time goes to listings.
_PAUSE_A_LISTING: Final = 20


async def report_committed_tasks(context: StageContext, is_open: Callable[[], bool]) -> None:
    """Reports the number of committed tasks every few seconds, until the job has no listener or is not open.

    A listing that fails is logged and not reported. Cost: one listing each time.
    """
    context = fresh_statistics(context)
    runtime, pause = context.runtime, LISTING_INTERVAL_S
    while True:
        await runtime.sleep(pause)
        if not (context.progress.is_heard and is_open()):
            return
        began = runtime.monotonic()
        try:
            context.progress.report_committed_tasks(await _count_committed_tasks(context))
        except Exception as error:
            _log.debug("the committed tasks of job %s were not counted: %s", context.layout.job_id, error)
        pause = max(LISTING_INTERVAL_S, _PAUSE_A_LISTING * (runtime.monotonic() - began))


async def _count_committed_tasks(context: StageContext) -> int:
    layout, by_message = context.layout, context.spec.delivery == "message"
    tasks: set[str | int | None] = set()
    with audit(ji=layout.job_id, st="count_tasks"):
        async with committer_for(context.spec.committer).opened(context) as opened:
            directory = layout.attempts if by_message else layout.manifests
            async for child in opened.holding(directory).list(directory):
                name = child.path.name
                if by_message:
                    tasks.add(layout.task_of_record(name))
                elif layout.is_record(name):
                    tasks.add(name)
    tasks.discard(None)
    return len(tasks)
