"""Preflight: refuses, before the decision, output that could not be published."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from committer.advice import call
from committer.errors import ConfigurationError, PreflightError, TargetExistsError
from committer.file_names import MAGIC_JOB, job_id_in
from committer.layout import SUCCESS, TEMPORARY, check_job_id
from committer.paths import StorePath
from committer.stages.base import Stage, StageContext
from committer.stages.check.inspect_destination import DestinationView, Inspection
from committer.stages.load.load_records import MOST_PROBLEMS
from committer.stages.names import NameFolding, is_absolute
from committer.stores.base import FileStatus

MOST_CONFLICTS = MOST_PROBLEMS


@dataclass(slots=True)
class Conflicts:
    """Reasons to refuse a job, one sentence each.

    Attributes:
        output: Between tasks, or with what the store can hold.
        targets: With what exists at the destination.
        next_step: What to do about the first of `targets`; empty for the usual advice.
        rights: With what the store would refuse at the destination.
        rights_step: What to do about `rights`, if the store says.
        run_again: What to do about the first of `output`.
    """

    output: list[str]
    targets: list[str]
    next_step: str = ""
    rights: list[str] = field(default_factory=list)
    rights_step: str = ""
    run_again: str = "run the job again, with tasks that write other names"

    def all(self) -> list[str]:
        """Returns at most a hundred of all kinds."""
        return (self.output + self.targets + self.rights)[:MOST_CONFLICTS]


class Preflight(Stage[Inspection, Conflicts]):
    """The stage that finds what would make the commit fail or lose data.

    It refuses: two tasks with one destination; a file that is another's ancestor; names that the store treats as
    equal (case, Unicode normalisation) or cannot hold; files in the place of a file or directory, unless the job may
    replace them; a directory that another job runs into, in the place of a file; directories with files, if the job
    refuses to add to them; directories that are links, if the job replaces the whole destination; what the store is
    known to refuse (another volume, another user's files in a sticky directory, missing permissions).

    Preconditions: records loaded, destination inspected.
    Cost: no store call; time and disk for a job of millions of files.
    Hadoop: checks none of it; its last rename wins.
    """

    name = "job_stage_preflight"

    async def execute(self, value: Inspection) -> Conflicts:
        """Collects conflicts of every kind."""
        changed = value.loaded.changed
        conflicts = Conflicts([*changed], [])
        if changed:
            conflicts.run_again = "run those tasks again"
        await self._collect_duplicates(value, conflicts.output)
        conflicts.output.extend(value.loaded.unstorable)
        self._collect_targets(value.view, conflicts)
        self._collect_rights(value.view, conflicts.rights)
        return conflicts

    def _collect_rights(self, view: DestinationView, rights: list[str]) -> None:
        rights.extend(
            f"no file can go into {name or 'the destination'}: {reason}" for name, reason in sorted(view.closed.items())
        )
        rights.extend(refused_moves(view.blocking))
        marker = {} if view.success is None else {SUCCESS: view.success}
        rights.extend(refused_moves(marker))
        if "replace" in (self.context.config.existing_target, self.context.config.conflict_mode):
            rights.extend(f"{name} cannot be replaced: {reason}" for name, reason in view.targets.refused.first())

    async def _collect_duplicates(self, value: Inspection, output: list[str]) -> None:
        loaded, folding = value.loaded, NameFolding(self.context.store.capabilities)
        folded: dict[str, str] = {}
        for directory in sorted(loaded.directories):
            key = folding.fold(directory)
            first = folded.setdefault(key, directory)
            if first is not directory:
                output.append(f"the store takes the directories {first} and {directory} for one")
        await loaded.repeats.add(folded)
        repeated = await loaded.repeats.find()
        if repeated:
            first_repeated = set(islice(repeated, MOST_CONFLICTS))
            output.extend(await self._tell_duplicates(value, folding, folded.keys(), first_repeated))

    async def _tell_duplicates(
        self, value: Inspection, folding: NameFolding, directories: Collection[str], repeated: set[int]
    ) -> list[str]:
        """Reads the names again, of which only hashes were kept."""
        tasks: dict[str, list[str]] = {}
        async for batch in value.files.batches():
            keys = folding.fold_all([file.destination for file in batch])
            for file, key in zip(batch, keys, strict=True):
                if hash(key) in repeated:
                    tasks.setdefault(key, []).append(value.loaded.attempts[file.source.partition("/")[0]])
        told = []
        for key, writers in tasks.items():
            if key in directories:
                told.append(f"{key} is a file of {min(writers)}, and a directory that other files need")
            elif len(writers) > 1:
                told.append(f"{key} is written by {' and '.join(sorted(writers)[:3])}")
        return told

    def _collect_targets(self, view: DestinationView, conflicts: Conflicts) -> None:
        config, targets = self.context.config, conflicts.targets
        running = sorted(view.jobs.items())
        targets.extend(
            f"a directory exists at {name}, where a file goes, and a job runs into it: it holds {job}"
            for name, job in running
        )
        if running:
            conflicts.next_step = end_it_first(running[0][1])
        if config.refuses_used_destination:
            if view.used:
                targets.append("the destination already holds data")
        elif config.conflict_mode == "fail":
            spared = {""} if config.superseded_scope == "partitions" else set[str]()
            told = sorted(view.occupied - spared)
            targets.extend(f"{name or 'the destination'} already holds files" for name in told)
        if view.success is not None and view.success.is_directory:
            targets.append("a directory exists at _SUCCESS, where the marker goes")
        if config.replaces_destination:
            targets.extend(
                f"{name} is a link to a directory: replacing the whole destination would take it away, with new files"
                for name in sorted(view.linked)
                if not is_absolute(name)
            )
        if config.existing_target == "replace":
            return
        others = bool(targets)
        for name, standing in view.targets.unwanted.first():
            kind = "a directory" if standing.is_directory else "a link" if standing.is_link else "a file"
            targets.append(f"{kind} exists at {name}, where a file goes")
        targets.extend(
            f"{'a link' if status.is_link else 'a file'} exists at {name}, where a directory goes"
            for name, status in sorted(view.blocking.items())
        )
        if targets and not others:
            # The job's configuration is the caller's choice; of a Hadoop job only the tasks' output is fixed.
            again = "commit the job" if self.context.spec.hadoop else "run the job again"
            conflicts.next_step = f"remove what is in the way, or {again} with existing_target='replace'"


_RIGHTS: Final = (
    "give the user of this process the right to it, or release the object's hold or retention; if it is on another "
    "disk, unmount it, replace the link by a directory, or write there with a separate job"
)


def refused_moves(standing: Mapping[str, FileStatus]) -> list[str]:
    """Returns a sentence for each existing file that cannot be moved aside."""
    return [
        # If the store gives advice, its path may be more useful than the name.
        f"{status.path if status.refuses.advice else name} cannot be moved aside: {status.refuses.move}"
        for name, status in sorted(standing.items())
        if status.refuses is not None and status.refuses.move
    ]


def end_it_first(job: StorePath) -> str:
    """Returns what to do about a job's working directory that is in the way."""
    runs_into, job_id = job.parent, job_id_in(job.name.removeprefix(MAGIC_JOB))
    if runs_into.name.casefold() == TEMPORARY:
        runs_into = runs_into.parent
    # All jobs of FileOutputCommitter share one; so do S3A's before Hadoop 3.4.0, whose name is no id.
    ends = f"delete {job} once no job uses it"
    with suppress(ConfigurationError):
        check_job_id(job_id)
        if not job_id.isdecimal():
            ends = (
                f"if its driver died in its commit, {call('recover', str(runs_into), job_id)} finishes it; if it died "
                f"before, {call('cleanup', str(runs_into), job_id=job_id)} removes it"
            )
    return f"wait for that job; {ends}; or run the job again, with tasks that write another name"


def refuse(context: StageContext, conflicts: Conflicts) -> None:
    """Raises `PreflightError`, or `TargetExistsError` if only existing targets conflict; nothing without conflicts."""
    found = conflicts.all()
    if not found:
        return
    kind = PreflightError if conflicts.output or not conflicts.targets else TargetExistsError
    if conflicts.output:
        step = conflicts.run_again
    elif conflicts.targets:
        step = conflicts.next_step or "remove what is in the way"
    else:
        step = conflicts.rights_step or _RIGHTS
        step = f"{step}; nothing was published"
    # Collection stops at this number.
    at_least = "at least " if len(found) == MOST_CONFLICTS else ""
    raise kind(
        f"job {context.layout.job_id} cannot be committed: {found[0]}"
        + (f" (and {at_least}{len(found) - 1} more)" if len(found) > 1 else ""),
        conflicts=found,
        operation=Preflight.name,
        path=context.layout.destination,
        next_step=step,
    )
