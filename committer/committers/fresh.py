"""Making the context of a job anew: for another call, or another try to commit it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from committer.committers.opened_store import paced
from committer.events import Statistics, names
from committer.flow.runtime import current_runtime
from committer.stages.base import StageContext
from committer.stores.paced import PacedStore


def fresh_statistics(context: StageContext) -> StageContext:
    """The same job with counts of its own: for a task attempt, or a second call."""
    statistics = Statistics()
    store = cast("PacedStore", context.store)
    fresh = paced(store.inner, context.config, statistics, owned=store.owned, claim=store.claim)
    return replace(context, store=fresh, statistics=statistics)


def as_new_driver(context: StageContext) -> StageContext:
    """The same job in a driver of its own, which each try to commit it is, with counts of its own.

    What an earlier try wrote or deleted may arrive late, where its answer was lost. It must not meet a record of the
    same name that another try rests on.

    The counts begin with those of the job's setup: in Hadoop's reports the committer that set the job up has them.
    """
    fresh = replace(fresh_statistics(context), driver=current_runtime().nonce())
    fresh.statistics.merge(context.statistics.snapshot().only(names.JOB_STAGE_SETUP))
    return fresh
