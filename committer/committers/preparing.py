"""Prepares a job's decision from its task records and the caller's inputs, or a plan of its commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice
from typing import Final

import msgspec

from committer.committers.failures import TO_BE_ABORTED, refuse_undecided
from committer.committers.position import Position
from committer.committers.results import CommitPlan, JobReport, refuse_other_tasks
from committer.committers.trusted_config import refuse_records_out_of_sight
from committer.errors import (
    CommitterError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    TargetExistsError,
    TaskMissingError,
    UnsupportedError,
)
from committer.file_names import is_used_once, root_of
from committer.flow.texts import Matches
from committer.flow.together import both, both_in_full, settled
from committer.flow.workers import portions
from committer.layout import has_nonce
from committer.logs import audit
from committer.readable import count
from committer.records.job_state import Decision, Fact, Intent, NamedRecord
from committer.records.task_commit import TaskCommit, messages_in
from committer.stages.base import RecordRef, StageContext
from committer.stages.check.foreign_metadata import refusal_of
from committer.stages.check.in_the_way import ObstacleFinder
from committer.stages.check.inspect_destination import DestinationView, FindTargets, InspectDestination, Inspection
from committer.stages.check.preflight import MOST_CONFLICTS, Conflicts, Preflight, refuse, refused_moves
from committer.stages.check.superseded import ListSuperseded, LookIntoTargets, Superseded
from committer.stages.check.task_files import LookUpIdentities, look_at_blocks, look_at_first_files
from committer.stages.decide.decide import DecisionContent
from committer.stages.decide.entries import DeclareScope, RefuseNeighbours, scope_of, superseded_scope
from committer.stages.load.load_records import LoadedRecords, LoadRecords
from committer.stages.load.planned_files import PlannedFiles
from committer.stages.load.promotions import LISTED_IN_A_CALL, Promotion, find_promotions, may_promote
from committer.stages.load.winning_records import (
    check_attempt_records,
    check_own_tasks,
    check_task_count,
    refs_of_messages,
)
from committer.stages.names import NameFolding, is_absolute, with_ancestors
from committer.stages.publish.promote import is_sealed_whole
from committer.stages.setup.destination_file import object_at_destination
from committer.stages.state.job_directory import look_at_job
from committer.stages.state.own_records import read_intent
from committer.stages.state.success_content import is_of_job, read_success
from committer.stores.abilities import LOCAL_PATHS, TREE_LISTING
from committer.stores.base import FileStatus
from committer.stores.helpers import walk


async def find_replacements(context: StageContext, inspection: Inspection) -> Superseded:
    """Finds the existing files that a job will replace, by one listing of each directory. Changes nothing."""
    folding, loaded, view = NameFolding(context.store.capabilities), inspection.loaded, inspection.view
    superseded, listed = Superseded(layout=context.layout, folding=folding), set[str]()
    try:
        if context.config.conflict_mode == "replace":
            superseded.links = await _links_named(context, loaded.written)
            written = {folding.fold(name) for name in loaded.written}
            listing = ListSuperseded(context, superseded, inspection.in_the_way, written)
            scope = superseded_scope(context.config, sorted(loaded.written), folding)
            superseded.whole = "" in scope
            if context.config.replaces_destination:
                _listed, standing = await both(listing.run(scope), object_at_destination(context))
                if standing is not None:
                    await superseded.add([standing.path.path], [standing])
            else:
                await listing.run(scope)
            listed = listing.listed
        await FindTargets(context, listed=listed, places=superseded.places).run(inspection)
        superseded.places += view.targets.facts.count
        if view.targets.directories and context.config.existing_target == "replace":
            await LookIntoTargets(context, superseded, listed).run(view)
        if loaded.files or superseded.any:
            superseded.stale = await _add_summaries(context, inspection, superseded, listed)
        await _leave_out(superseded, view, folding, listed_apart=loaded.entries is None or bool(superseded.stale))
    except BaseException:
        await superseded.facts.close()
        await view.targets.facts.close()
        raise
    return superseded


async def _add_summaries(
    context: StageContext, inspection: Inspection, superseded: Superseded, listed: AbstractSet[str]
) -> list[str]:
    """Adds stale summary files of changed directories to the old files; one listing a symlink manifest's directory.

    Excludes no other job: of two jobs that add files at once, the first to publish removes a summary that both found.
    """
    view, fold = inspection.view, NameFolding(context.store.capabilities).fold
    found = {name: status for name, status in view.summaries.items() if fold(name.rpartition("/")[0]) not in listed}
    for _mark, status in view.root.of(("summary",) if "" not in listed else ()):
        if not status.is_directory:
            found[status.path.name] = status
            continue
        # Another job may remove it meanwhile.
        with suppress(StoreNotFoundError, StoreNotADirectoryError):
            async for file in walk(context.store, status.path):
                if not file.is_directory or file.is_link:
                    found[context.layout.name_of(file.path)] = file
    if context.forms.visible_early:
        # What exists at a file's name is what the job's own task put there.
        found = {name: status for name, status in found.items() if fold(name) not in inspection.in_the_way.found}
    await superseded.add([*found], [*found.values()], replaces=False)
    return sorted({name if name in view.summaries else name.partition("/")[0] for name in found})


async def _leave_out(
    superseded: Superseded, view: DestinationView, folding: NameFolding, *, listed_apart: bool
) -> None:
    """Drops old files whose name a new file takes from the list of superseded files.

    `listed_apart`: the old files were listed before the names of new files were known.
    """
    async with Matches[bool](bool) as replaced:
        await replaced.note(folding.fold_all([*view.blocking]), [True] * len(view.blocking))
        if listed_apart and superseded.facts:
            async for facts in view.targets.facts.batches():
                await replaced.note(folding.fold_all([fact.path for fact in facts]), [True] * len(facts))
        await superseded.leave_out(replaced)


async def _links_named(context: StageContext, written: Collection[str]) -> list[str]:
    """Returns refusals for links on the way to superseded directories: files behind a link are another directory's."""
    layout, fold = context.layout, NameFolding(context.store.capabilities).fold
    gone_through = {fold(directory) for directory in with_ancestors(sorted(written), layout.roots)}
    named = [name for name in context.config.superseded_directories if fold(name) not in gone_through]
    if not (named and context.store.capabilities.local_paths):
        return []
    able = LOCAL_PATHS.required(context.store, "find_link")
    found = [await able.find_link(layout.destination, [name for name in named if not is_absolute(name)])]
    for root in sorted(layout.roots):
        below = [name.removeprefix(f"{root}/") for name in named if name.startswith(f"{root}/")]
        link = await able.find_link(layout.target(root), below) if below else None
        found.append(link and f"{root}/{link}")
    return [
        f"{link} is a link, and is to be superseded: the files behind it are another directory's"
        for link in found
        if link
    ]


_FEW_STEPS = 3


@dataclass(slots=True)
class Prepared:
    """Everything known before the decision; `superseded` are old files to remove."""

    loaded: LoadedRecords
    files: PlannedFiles
    view: DestinationView
    superseded: Superseded
    conflicts: Conflicts

    async def aclose(self) -> None:
        """Frees the driver's disk space."""
        await self.superseded.facts.close()
        await self.loaded.close()
        await self.view.targets.facts.close()


async def find_refs(
    context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None, *, taking: bool
) -> list[RecordRef]:
    """Returns the winning records: those that messages name, or that a listing finds.

    Messages cost no call: `check_attempt_records` checks later that their records exist.
    """
    refuse_records_out_of_sight(context)
    refs = refs_of_messages(context, task_commits) if task_commits is not None else None
    if refs is not None:
        check_task_count(context.layout, refs, tasks)
    if context.spec.delivery == "listing":
        # Before the listing, which may miss what commits while it runs.
        own = context.known.committed
        listed = await context.forms.list_records(context, taking=taking)
        if refs is None:
            check_own_tasks(context.layout, own, listed)
        refs = listed if refs is None else named_among(listed, refs)
    refs = refs or []
    check_task_count(context.layout, refs, tasks)
    return refs


def named_among(listed: Iterable[RecordRef], named: Iterable[RecordRef]) -> list[RecordRef]:
    """Returns the records that messages name, each as a listing found it, if it did."""
    by_name = {ref.record.rpartition("/")[2]: ref for ref in listed}
    return [
        replace(by_name.get(ref.record.rpartition("/")[2], ref), digest=ref.digest, inline=ref.inline) for ref in named
    ]


async def prepare(
    context: StageContext,
    refs: list[RecordRef],
    *,
    copy_records: bool,
    prove: Callable[[], Awaitable[None]] | None = None,
    excludes: bool = False,
) -> Prepared:
    """Loads records, inspects and checks the destination. Changes only the job's own directory and its entry.

    A job that replaces nothing inspects the destination while it lists the entries: the publish action meets
    files that another job adds. The result counts only if no other job replaces data there.

    Args:
        copy_records: Copy records to side files of the decision.
        prove: Probes the store; called if replaced files would be kept by hard links.
        excludes: Exclude other jobs whose scopes meet: the caller commits.
    """
    loaded = await LoadRecords(context, copies=copy_records).run(refs)
    try:
        _refuse_unnamed(context, loaded)
        scope = scope_of(context.config, loaded.written, NameFolding(context.store.capabilities))
        if excludes:
            await DeclareScope(context).run(scope)
        if excludes and scope.replaces:
            await RefuseNeighbours(context).run(scope)
        if not excludes or scope.replaces:
            return await _look_at_destination(context, loaded, prove)
        looked = settled(_look_at_destination(context, loaded, prove))
        prepared, refusal = await both(looked, settled(RefuseNeighbours(context).run(scope)))
    except BaseException:
        await loaded.close()
        raise
    if isinstance(prepared, Exception):
        await loaded.close()
        raise refusal if isinstance(refusal, Exception) else prepared
    if isinstance(refusal, Exception):
        await prepared.aclose()
        raise refusal
    return prepared


async def _look_at_destination(
    context: StageContext, loaded: LoadedRecords, prove: Callable[[], Awaitable[None]] | None
) -> Prepared:
    in_the_way = ObstacleFinder(context.store.capabilities, loaded, keep_all=context.forms.visible_early)
    told = len(loaded.changed)
    try:
        if loaded.lacking:
            await LookUpIdentities(context).run(loaded)
        files = PlannedFiles(context, loaded.winners, loaded.entries, loaded.identities, on_disk=loaded.on_disk)
        inspection = Inspection(loaded, files, in_the_way)
        view = inspection.view
        _inspected, gone = await both(InspectDestination(context).run(inspection), look_at_first_files(context, loaded))
        # Before the conflicts of single files of the same attempts.
        loaded.changed[told:told] = gone
        superseded = await find_replacements(context, inspection)
        try:
            if view.targets:
                files.targets = view.targets.facts
                loaded.changed.extend(await look_at_blocks(context, files))
            if prove is not None and view.targets and context.store.capabilities.hard_links:
                await prove()
            conflicts = await Preflight(context).run(inspection)
        except BaseException:
            await superseded.facts.close()
            await view.targets.facts.close()
            raise
    finally:
        await in_the_way.close()
        await loaded.repeats.close()
    refusal = refusal_of(view.root, whole=superseded.whole)
    if refusal is not None:
        problem, conflicts.next_step = refusal
        conflicts.targets.insert(0, problem)
    conflicts.targets.extend(superseded.links)
    if not conflicts.rights:
        conflicts.rights_step = _steps(superseded.refused)
    conflicts.rights.extend(refused_moves(superseded.refused))
    conflicts.targets.extend(superseded.unnameable)
    if context.store.capabilities.deletes_by_name:
        await _refuse_reused_names(view, superseded, conflicts)
    return Prepared(loaded, files, view, superseded, conflicts)


async def _refuse_reused_names(view: DestinationView, superseded: Superseded, conflicts: Conflicts) -> None:
    names = [name for name in view.blocking if not is_used_once(name)]
    async for facts in superseded.facts.batches():
        names.extend(fact.path for fact in facts if not is_used_once(fact.path))
        if len(names) >= MOST_CONFLICTS:
            break
    if names and not conflicts.targets:
        conflicts.next_step = "delete those old files yourself, or write to another directory"
    conflicts.targets.extend(
        f"{name} would be deleted by its name, which its writer may use again: it holds no UUID"
        for name in names[:MOST_CONFLICTS]
    )


def _refuse_unnamed(context: StageContext, loaded: LoadedRecords) -> None:
    """Refuses a job with more files than `_SUCCESS` can name, if only `_SUCCESS` tells which count."""
    most = context.forms.filenames_limit
    if context.forms.names_all and loaded.files > most:
        raise UnsupportedError(
            f"the job has {loaded.files} files, and _SUCCESS, which must name each of them, names at most {most}",
            operation="commit_job",
            path=context.layout.destination,
            next_step="abort the job, and write fewer files, or take another committer",
        )


def _steps(superseded: Mapping[str, FileStatus]) -> str:
    """Returns the store's advice for the first old files that cannot be removed."""
    told = (status.refuses.advice for _, status in sorted(superseded.items()) if status.refuses is not None)
    return "; ".join(islice(filter(None, told), _FEW_STEPS))


def _roots_written(context: StageContext, loaded: LoadedRecords) -> tuple[str, ...]:
    roots = context.layout.roots
    if not roots:
        return ()
    used = {root_of(f"{directory}/", roots) for directory in loaded.written if is_absolute(directory)}
    used |= {root_of(directory, roots) for directory in loaded.directories if is_absolute(directory)}
    used |= {root_of(f"{name}/", roots) for name in context.config.superseded_directories if is_absolute(name)}
    return tuple(sorted(str(context.layout.target(root)) for root in used if root is not None))


async def promotions_of(context: StageContext, prepared: Prepared) -> list[Promotion]:
    """Returns the directories to rename as a whole; none if that saves no calls, or is not allowed.

    By default without attempts that may still be written: by programs with a path, or by another engine.
    """
    wanted, layout, store = context.config.promote_directories, context.layout, context.store
    loaded, absent = prepared.loaded, prepared.view.absent
    if not (absent and may_promote(context)):
        return []
    unsure = set() if wanted else loaded.by_path.union(name for name in loaded.attempts if not has_nonce(name))
    together = TREE_LISTING.of(store) is not None
    promotions = await find_promotions(
        loaded.owners, loaded.written, loaded.directories, absent, left_out=unsure, listed_together=together
    )
    costs = 0 if layout.is_out_of_reach else 1 if is_sealed_whole(context) else len(loaded.attempts)
    saved, owners = 0, set[str]()
    async for some in portions(promotions):
        saved += sum(promotion.saves for promotion in some)
        owners.update(promotion.owner for promotion in some)
    if together:
        listings = len(owners)
        costs += listings if loaded.entries is None else min(listings, 1 + loaded.files // LISTED_IN_A_CALL)
    return promotions if saved > costs else []


def decision_content(context: StageContext, prepared: Prepared, *, sealed: bool) -> DecisionContent:
    """Builds the decision's content; numbers each old file for its move into the job's directory."""
    loaded, view = prepared.loaded, prepared.view
    # Old files, and files at the targets, come first.
    blocking = enumerate(sorted(view.blocking.items()), prepared.superseded.places)
    facts = [
        Fact("blocking", path, status.identity, status.size, status.is_directory, aside)
        for aside, (path, status) in blocking
    ]
    facts.extend(Fact("directory", path) for path in sorted(view.absent))
    roots = _roots_written(context, loaded)
    decision = Decision(
        job_id=context.layout.job_id,
        decision="commit",
        driver=context.driver,
        created=context.timestamp(),
        config=msgspec.structs.replace(context.config, absolute_roots=roots),
        winners=loaded.winners,
        files=loaded.files,
        size=loaded.size,
        directories=len(view.absent),
        facts=facts,
        success_identity=view.success.identity if view.success is not None else None,
        success_present=view.success is not None,
        replacing=prepared.superseded.any or bool(view.targets.facts),
        # `validate` can then compare all files of the destination with all that were committed.
        was_empty=view.was_empty and not roots,
        hadoop=context.spec.hadoop,
        job_attempt=context.layout.job_attempt,
        statistics=loaded.statistics.snapshot(),
        sealed=sealed,
    )
    return DecisionContent(
        decision, prepared.superseded.facts, loaded.identities, view.targets.facts, loaded.side_files
    )


@dataclass(slots=True)
class CommitInputs:
    """Inputs of the commit decision.

    Attributes:
        messages: Task commits from the caller; None for a listing or a recovery.
        recovering: Whether another driver's intent counts.
        winners: The records that the intent names; None if a listing counts.
        began: Whether this call began to declare an intent: an earlier failure has nothing to withdraw.
    """

    messages: list[TaskCommit] | None = None
    tasks: int | None = None
    recovering: bool = False
    winners: list[NamedRecord] | None = None
    began: bool = False

    @classmethod
    def as_intended(cls, intent: Intent | None) -> CommitInputs:
        """Builds the inputs from a dead driver's intent; without an intent a listing counts."""
        if intent is None:
            return cls(recovering=True)
        return cls(tasks=intent.tasks, recovering=True, winners=intent.winners)

    def check_decided(self, context: StageContext, position: Position) -> None:
        """Refuses another driver's decision whose tasks differ from this commit's."""
        decision, layout = position.decision, context.layout
        if decision is None or decision.driver == context.driver or self.recovering:
            return
        winners, tasks = {winner.task for winner in decision.winners}, self.tasks
        named = winners
        if self.messages is not None:
            tasks = tasks or len(self.messages)
            # Task ids in Hadoop's decisions may differ from this engine's.
            named = winners if decision.hadoop else {layout.task_id(message.task) for message in self.messages}
        if tasks in (None, len(winners)) and named == winners:
            return
        ended = position.outcome is not None
        other = min(named ^ winners, default="")
        raise TaskMissingError(
            f"job {layout.job_id} was decided by another driver with {count(len(winners), 'task')}, and this commit "
            f"has {tasks}" + (f"; {other} is in only one of the two" if other else ""),
            operation="commit_job",
            path=layout.job_directory,
            outcome="committed" if ended else "partial",
            next_step=f"{context.recover_call()} finishes the job as it was decided"
            + ("; run the other tasks as a new job" if ended else f"; {context.rollback_advice()}"),
        )

    def check_reported(self, context: StageContext, report: JobReport) -> None:
        """Refuses the report of a job that another driver ended with another number of tasks."""
        asked = self.tasks if self.messages is None else len(self.messages)
        refuse_other_tasks(report, context.layout.destination, asked)

    async def intent_for(self, context: StageContext) -> Intent:
        """Returns this driver's intent: the winners that are known before anything is listed."""
        winners = self.winners
        if self.messages is not None:
            refs = refs_of_messages(context, self.messages)
            winners = [NamedRecord(ref.record, ref.digest or "") for ref in refs]
        return Intent(
            job_id=context.layout.job_id,
            driver=context.driver,
            created=context.timestamp(),
            winners=winners,
            tasks=self.tasks,
            process=await context.process(),
            job_attempt=context.layout.job_attempt,
        )

    async def find(self, context: StageContext) -> list[RecordRef]:
        """Returns the winning records; refuses another number of them than the job has tasks."""
        if not self.recovering:
            return await find_refs(context, self.messages, self.tasks, taking=True)
        if self.winners is not None and context.spec.delivery == "message":
            return [RecordRef(winner.record, winner.digest) for winner in self.winners]
        listed = await find_refs(context, None, self.tasks, taking=True)
        if self.winners is None:
            return listed
        return named_among(listed, [RecordRef(winner.record, winner.digest) for winner in self.winners])

    async def prepare(self, context: StageContext, prove: Callable[[], Awaitable[None]]) -> Prepared:
        """Loads the winning records, excludes other jobs, inspects the destination and refuses conflicts.

        Checks at the same time that the records exist that messages name.
        """
        refs, by_listing = await self.find(context), context.spec.delivery == "listing"

        async def prepared_unless_refused() -> Prepared:
            prepared = await prepare(context, refs, copy_records=by_listing, prove=prove, excludes=True)
            try:
                refuse(context, prepared.conflicts)
            except CommitterError as refused:
                await prepared.aclose()
                if isinstance(refused, TargetExistsError):
                    await _say_committed_before(context, refused)
                raise
            return prepared

        if self.recovering or by_listing or not refs:
            return await prepared_unless_refused()
        _stand, prepared = await both_in_full(check_attempt_records(context, refs), prepared_unless_refused())
        return prepared


async def _say_committed_before(context: StageContext, refused: TargetExistsError) -> None:
    """Adds to a refusal that a job of this id may have committed before, such as a repeated notebook cell: one read."""
    with suppress(CommitterError):
        marker = await read_success(context)
        if marker is not None and is_of_job(marker, context.layout):
            refused.next_step = (
                f"_SUCCESS says that a job {marker.jobId} committed there before: if that was this work, it is done, "
                f"and this job {TO_BE_ABORTED} there; else {refused.next_step}"
            )


async def intent_of(context: StageContext, position: Position, *, force: bool) -> Intent | None:
    """Returns the intent of a driver that began to commit; None if `force` takes a listing."""
    intent = await read_intent(context.store, position.found) if position.found is not None else None
    if intent is None:
        check_forced(context, force=force)
    return intent


def check_forced(context: StageContext, *, force: bool) -> None:
    """Refuses to decide a job that no driver began to commit, unless `force` takes a listing."""
    if not (force and context.spec.delivery == "listing"):
        raise refuse_undecided(context)


_MOST_NAMED: Final = 100


async def plan_job(context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None) -> CommitPlan:
    """Loads and checks a job without writing anything."""
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
    """Returns at most a hundred names that would be replaced, without those that refuse the commit."""
    view = prepared.view
    names = {name for name, _standing in view.targets.first.first()}
    if context.config.existing_target == "replace":
        names |= view.blocking.keys()
    else:
        names -= {name for name, _standing in view.targets.unwanted.first()}
    first = nsmallest(_MOST_NAMED, names)
    async for facts in prepared.superseded.facts.batches():
        first = nsmallest(_MOST_NAMED, [*first, *(fact.path for fact in facts)])
    return first


async def _stray(context: StageContext, refs: list[RecordRef]) -> list[str]:
    """Returns at most a hundred records that would not be published."""
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
