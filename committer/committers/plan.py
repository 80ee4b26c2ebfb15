"""What a job commit would do, found out without doing any of it."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import Final

from committer.audit import audit
from committer.committers.preparing import Prepared, find_refs, prepare
from committer.committers.results import CommitPlan
from committer.errors import CommitterError
from committer.records.task_commit import TaskCommit, messages_in
from committer.stages.base import RecordRef, StageContext
from committer.stages.job_directory import look_at_job
from committer.stages.record_refs import check_attempt_records

_MOST_NAMED: Final = 100


async def plan_job(context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None) -> CommitPlan:
    """Loads and checks without writing anything."""
    with audit(ji=context.layout.job_id):
        await look_at_job(context.store, context.layout)
        refs = await find_refs(context, messages_in(task_commits), tasks, taking=False)
        if refs and context.spec.delivery == "message":
            await check_attempt_records(context, refs)
        prepared = await prepare(context, refs, copy_records=False)
    try:
        replaced = await _replaced(context, prepared)
    finally:
        await prepared.aclose()
    return CommitPlan(
        files=prepared.loaded.files,
        bytes=prepared.loaded.size,
        directories=sorted(prepared.view.absent),
        conflicts=prepared.conflicts.all(),
        replaced=replaced,
        tasks=len(refs),
        stray=await _stray(context, refs),
    )


async def _replaced(context: StageContext, prepared: Prepared) -> list[str]:
    """What makes room, at most a hundred: not what refuses the commit because the job may not replace it."""
    view = prepared.view
    names = {name for name, _standing in view.targets.first.items()}
    if context.config.existing_target == "replace":
        names |= view.blocking.keys()
    else:
        names -= {name for name, _standing in view.targets.unwanted.items()}
    first = nsmallest(_MOST_NAMED, names)
    async for facts in prepared.superseded.facts.batches():
        first = nsmallest(_MOST_NAMED, [*first, *(fact.path for fact in facts)])
    return first


async def _stray(context: StageContext, refs: list[RecordRef]) -> list[str]:
    """Records that would not be published, at most a hundred."""
    layout = context.layout
    winning = {ref.record for ref in refs}
    stray: list[str] = []
    for directory in (layout.manifests, layout.attempts):
        try:
            children = [child async for child in context.holding(directory).list(directory)]
        except CommitterError:
            continue
        # Some committers keep other things beside records, in directories.
        records = [child.path for child in children if not child.is_directory]
        stray += [str(path) for path in records if layout.record_name(path) not in winning]
    return sorted(stray)[:100]
