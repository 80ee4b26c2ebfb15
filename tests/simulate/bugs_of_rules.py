"""Mutants that take a step where the protocol's table does not allow it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from committer.layout import JobLayout
from committer.records.job_state import Decision, JobOutcome
from committer.stages.base import StageContext
from committer.stages.decide.decide import DecideCommit, create_decision
from committer.stages.decide.entries import DeclareIntent
from committer.stages.finish.end_job import EndJob
from committer.stages.publish.move_aside import SetAsideSuccess
from committer.stages.publish.publish import Published, PublishFiles
from committer.stages.remove.removal import RemoveJob, put_kept
from committer.stores.abilities import CONDITIONAL_DELETE
from committer.stores.helpers import status_or_none
from tests.simulate.patches import Patches


def intent_left_out(patches: Patches) -> None:
    """A driver decides without an intent."""

    async def execute(self: DeclareIntent, value: Any) -> None:
        return

    patches.method(DeclareIntent, "execute", execute)


def one_intent_for_all(patches: Patches) -> None:
    """All drivers of a job write their intents under one name."""
    intent = JobLayout.intent
    patches.method(JobLayout, "intent", lambda self, _driver: intent(self, "any"))


def one_entry_for_all(patches: Patches) -> None:
    """All drivers of a job, and all their tries, create their entries under one name."""
    entry = JobLayout.entry
    patches.method(JobLayout, "entry", lambda self, _driver, *, replaces: entry(self, "any", replaces=replaces))


def success_set_aside_undecided(patches: Patches) -> None:
    """The old `_SUCCESS` is moved into the job's directory before the decision."""
    original = DecideCommit.execute

    async def execute(self: DecideCommit, value: Any) -> Any:
        await SetAsideSuccess(self.context).run(value.decision)
        return await original(self, value)

    patches.method(DecideCommit, "execute", execute)


def kept_with_the_decision(patches: Patches) -> None:
    """A driver writes the copy of the outcome before there is one."""
    original = DecideCommit.execute

    async def execute(self: DecideCommit, value: Any) -> Any:
        decided = await original(self, value)
        if self.context.config.outcome_kept:
            outcome = JobOutcome(job_id=self.context.layout.job_id, outcome="committed", driver="", created="")
            await put_kept(self.context, outcome)
        return decided

    patches.method(DecideCommit, "execute", execute)


def ended_before_publishing(patches: Patches) -> None:
    """The outcome is created before the files are published."""
    original = PublishFiles.execute

    async def execute(self: PublishFiles, value: Any) -> Published:
        await EndJob(self.context).run((value.decision, "committed", ""))
        return await original(self, value)

    patches.method(PublishFiles, "execute", execute)


def ended_while_publishing(patches: Patches) -> None:
    """A driver does not wait for its renames before it creates the outcome."""
    original, running = PublishFiles.execute, set[asyncio.Task[Published]]()

    async def execute(self: PublishFiles, value: Any) -> Published:
        task = asyncio.create_task(original(self, value))
        running.add(task)
        await asyncio.wait([task], timeout=0.02)
        return Published(files=value.decision.files, size=value.decision.size)

    patches.method(PublishFiles, "execute", execute)


def aborted_undecided(patches: Patches) -> None:
    """An abort removes the job without a decision against it."""

    async def create(context: StageContext, decision: Decision) -> Decision:
        return decision if decision.decision == "abort" else await create_decision(context, decision)

    patches.function(create_decision, create)


def removed_on_a_condition(patches: Patches) -> None:
    """A removal deletes the setup record on the condition that it is the one that it sees."""
    original = RemoveJob.execute

    async def execute(self: RemoveJob, value: Any) -> None:
        store, setup = self.context.store, self.context.layout.setup
        able, seen = CONDITIONAL_DELETE.of(store), await status_or_none(store, setup)
        if able is not None and seen is not None and seen.identity is not None:
            await able.delete_file_if(setup, identity=seen.identity)
        await original(self, value)

    patches.method(RemoveJob, "execute", execute)


OF_RULES: tuple[Callable[[Patches], None], ...] = (
    intent_left_out,
    one_intent_for_all,
    one_entry_for_all,
    success_set_aside_undecided,
    kept_with_the_decision,
    ended_before_publishing,
    ended_while_publishing,
    aborted_undecided,
    removed_on_a_condition,
)

SAYS: Mapping[str, str] = {
    "intent-left-out": "is decided without an intent",
    "one-intent-for-all": "/intent-any was given twice, with another content",
    "one-entry-for-all": "~any.append was given twice, with another content",
    "success-set-aside-undecided": "_SUCCESS is moved aside where",
    "kept-with-the-decision": "the outcome is kept where",
    "ended-before-publishing": "is published, or put back where",
    "ended-while-publishing": "while publish actions are under way",
    "aborted-undecided": "the job's directory is removed where",
    "removed-on-a-condition": "is deleted on a condition",
    "others-listed-first": "is opened before _temporary was listed",
    "entries-ignored": "before its entry was created and the entries were listed",
    "decided-after-publishing": "is published, or put back where",
    "setup-record-not-looked-for": "and setup was not looked for since decision",
    "success-before-validation": "_SUCCESS is moved to the destination where",
    "entry-deleted-before-the-directory": "is deleted, and its job is live",
}
"""What the rules say of a mutant: those above, and others that break one beside a guarantee."""
