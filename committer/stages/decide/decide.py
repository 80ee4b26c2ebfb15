"""The decision stage: writes the facts that the decision rests on, then creates the decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from committer.errors import (
    CommitterError,
    OutcomeUnknownError,
    StoreError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
)
from committer.flow.together import both
from committer.records.job_state import Decision, PlanFile, PlanKind, decode_record, encode_facts, encode_record
from committer.records.task_commit import digest_of
from committer.stages.base import Stage, StageContext
from committer.stages.durability import sync_directories
from committer.stages.facts import FACTS_A_FILE, DecisionFacts, FactList, Facts, Lines, NotedFacts, RecordedFacts
from committer.stages.state.job_liveness import has_setup, job_vanished, make_superseded, may_vanish
from committer.stages.state.own_records import create_record, put_record, read_decision

# Most facts in the decision itself, some 100 bytes each; a side file is one more round trip.
FACTS_IN_DECISION = 1_000


class DecisionContent(NamedTuple):
    """A commit decision to create, with facts of which there may be millions.

    Attributes:
        decision: With facts of other kinds than the following.
        superseded: Old files.
        identities: Identities of sources, in the order of the files.
        targets: What exists at files' destinations, in the order of the files.
        first_plan_file: The first free number for a side file.
    """

    decision: Decision
    superseded: NotedFacts
    identities: NotedFacts
    targets: NotedFacts
    first_plan_file: int


class Decided(NamedTuple):
    """The decision on the store, and the facts of this driver's, which count if it created the decision."""

    decision: Decision
    facts: DecisionFacts


class DecideCommit(Stage[DecisionContent, Decided]):
    """The stage that creates the commit decision exclusively. A driver that loses reads the winner's and obeys it.

    Preconditions: preflight found nothing; intent and entry exist.
    Postconditions: the job is decided, and everything needed to finish it or roll it back is on the store. With
    `durability="fsync"` that survives a power loss, and so does the name of the directory for old files.
    Failure modes: `JobNotFoundError` if the job's directory vanished; nothing was published.
    `OutcomeUnknownError` if the job may be decided; every other failure comes before the decision.
    Cost: 2 calls, 3 where the job's directory can outlast its setup record; one per 25,000 facts if there are
    more than 1,000; with `durability="fsync"` one more.
    """

    name = "job_stage_decide"

    async def execute(self, value: DecisionContent) -> Decided:
        """Writes side files, creates the directory for old files if it is missing, decides."""
        layout = self.context.layout
        inline = value.decision.facts
        noted: dict[PlanKind, NotedFacts] = {
            "superseded": value.superseded,
            "identity": value.identities,
            "target": value.targets,
        }
        few = len(inline) + sum(facts.count for facts in noted.values()) <= FACTS_IN_DECISION
        if few:
            inline = [*inline, *(fact for facts in noted.values() for fact in facts.in_memory or ())]
        try:
            if few:
                plan = list[PlanFile]()
                await make_superseded(self.context)
            else:
                plan, _made = await both(self._write_plan(value, noted), make_superseded(self.context))
            # The decision relies on a name in there: the directory for old files.
            await sync_directories(self.context, [layout.work])
        except StoreNotFoundError as error:
            raise job_vanished(self.context, self.name, error) from error
        decision = msgspec.structs.replace(value.decision, facts=inline if few else [], plan=plan)
        facts = DecisionFacts(
            value.decision.facts, *(self._read_back(kind, facts, plan) for kind, facts in noted.items())
        )
        return Decided(await create_decision(self.context, decision), facts)

    def _read_back(self, kind: PlanKind, noted: NotedFacts, plan: list[PlanFile]) -> Facts:
        if noted.in_memory is not None:
            return FactList(noted.in_memory)
        files = [file for file in plan if file.kind == kind]
        return RecordedFacts(self.context, files, of_directories=noted.of_directories, directories=noted.within)

    async def _write_plan(self, value: DecisionContent, noted: Mapping[PlanKind, NotedFacts]) -> list[PlanFile]:
        plan = list[PlanFile]()
        for start in range(0, len(value.decision.facts), FACTS_A_FILE):
            chunk = value.decision.facts[start : start + FACTS_A_FILE]
            await self._write_file(plan, value.first_plan_file, Lines(encode_facts(chunk), len(chunk)), "")
        for kind, facts in noted.items():
            async for lines in facts.lines():
                await self._write_file(plan, value.first_plan_file, lines, kind)
        return plan

    async def _write_file(self, plan: list[PlanFile], first: int, lines: Lines, kind: PlanKind) -> None:
        # The name contains the driver, so a driver that loses the race does not overwrite the winner's side files.
        path = self.context.layout.plan_file(first + len(plan), self.context.driver)
        await put_record(self.context, path, lines.data)
        plan.append(PlanFile(name=path.name, digest=digest_of(lines.data), lines=lines.facts, kind=kind))


async def create_decision(context: StageContext, decision: Decision) -> Decision:
    """Creates a decision, or returns the existing one.

    Where the job's directory can outlast its setup record, the driver reads that afterwards, and deletes a decision
    about a job that was removed meanwhile. Raises `JobNotFoundError` if the job was removed; `OutcomeUnknownError` if
    a decision may exist and could not be read, or may not survive a power loss: nothing was published or deleted.
    """
    layout, store = context.layout, context.store
    wanted = encode_record(decision)
    try:
        found = await create_record(context, layout.decision, wanted, Decision)
    except StoreNotFoundError as error:
        raise job_vanished(context, DecideCommit.name, error) from error
    except StoreOutcomeUnknownError as error:
        raise await _undetermined(context, error) from error
    own = found == wanted
    if may_vanish(context):
        try:
            stands = await has_setup(context)
        except StoreError as error:
            # A caller that took this for a failed decision would delete the intent of a decided job.
            raise OutcomeUnknownError(
                f"job {layout.job_id} is decided, but whether its directory still exists could not be looked up",
                operation=DecideCommit.name,
                path=layout.decision,
                next_step=_step_of(context, decision),
                causes=[error],
            ) from error
        if not stands:
            if own:
                await store.delete_file(layout.decision)
            raise job_vanished(context, DecideCommit.name)
    # Decoding one's own would create all its objects a second time.
    return decision if own else decode_record(found, Decision, source=str(layout.decision))


async def _undetermined(context: StageContext, error: StoreOutcomeUnknownError) -> OutcomeUnknownError:
    """Builds the error of a create of a decision with unknown outcome, by what exists."""
    layout = context.layout
    try:
        standing = await read_decision(context.store, layout)
    except CommitterError:
        standing = None
    if standing is None:
        return OutcomeUnknownError(
            f"cannot tell whether job {layout.job_id} was decided: {error.message}",
            operation=DecideCommit.name,
            path=layout.decision,
            next_step=f"call {context.recover_call()}: it finishes what was decided",
            causes=[error],
        )
    how = "to be committed" if standing.decision == "commit" else "to be aborted"
    return OutcomeUnknownError(
        f"job {layout.job_id} is decided {how}, but a power loss could take the decision back: {error.message}",
        operation=DecideCommit.name,
        path=layout.decision,
        outcome="partial",
        next_step=f"see that the disk works and has room, then {_step_of(context, standing)}",
        causes=[error],
    )


def _step_of(context: StageContext, decision: Decision) -> str:
    if decision.decision == "commit":
        return f"call {context.recover_call()}: it finishes what was decided"
    return f"call {context.cleanup_call()}: it removes what is left of the job"


def abort_decision(context: StageContext) -> Decision:
    """Returns a decision that the job never becomes visible."""
    return Decision(
        job_id=context.layout.job_id,
        decision="abort",
        driver=context.driver,
        created=context.timestamp(),
        config=context.config,
        hadoop=context.spec.hadoop,
        job_attempt=context.layout.job_attempt,
    )
