"""The paths of one job: pure arithmetic, no I/O.

Below the destination D of job J, attempt N, set up under the nonce S (Hadoop's layout, with this engine's
records beside it)::

    D/_SUCCESS
    D/_temporary/.committing/J~S~<driver>.append, .replace  the scope of a job that is about to be decided
    D/_temporary/J~S/setup                  the job as it was set up
    D/_temporary/J~S/opened                 "open" by the driver that set the job up; "closed": no job was opened
    D/_temporary/J~S/intent-<driver>        a driver began to commit the job, with these winners
    D/_temporary/J~S/decision, plan-00000-<driver>…  commit or abort, and what the decision rests on
    D/_temporary/J~S/outcome                committed or rolled back
    D/_temporary/J~S/kept                   a kept outcome; then only this and `opened` stay
    D/_temporary/J~S/work/                  files that drivers write first and rename after
    D/_temporary/J~S/work/superseded/       old files moved aside until cleanup
    D/_temporary/J~S/work-fenced/           the same once the job is over, if its directory stays
    D/_temporary/J~S/work/tasks-sealed/     files of task attempts, if the decision is sealed
    D/_temporary/J~S/NN/tasks/<attempt>-<nonce>/…  files of a task attempt
    D/_temporary/J~S/NN/manifests/          records under the task's name   (delivery by listing)
    D/_temporary/J~S/NN/attempts/           records under the attempt's name (delivery by message)
    D/_temporary/J~S/NN/uploads/<attempt>-<nonce>/  lists of a task attempt's uploads  (stores without renames)
    D/_temporary/J~S.new/                   the directory while it is made, on stores that rename directories
    D/_temporary/J~S.removed/               the directory while it is deleted, on these stores

S is drawn for each setup of an id, so no other job ever uses a name in the directory: a delayed request of a
finished job can only leave an orphan there. A job of Hadoop's has no nonce, and NN in place of `work`. Some
committers keep records by listing elsewhere (`Committer.listed_layout`).

A published file has a *name*: relative to D, or (with `CommitterConfig.absolute_roots`) an absolute path of the
same store, which starts with a slash. Source of the names that Hadoop shares: ``ManifestCommitterConstants``,
``ManifestCommitterSupport``.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
from collections.abc import Iterable
from typing import ClassVar, Final, NamedTuple, Self

from committer.errors import ConfigurationError, InvalidPathError
from committer.file_names import root_of
from committer.paths import StorePath

TEMPORARY = "_temporary"
COMMITTING = ".committing"
RECORDS = ("setup", "opened", "decision", "outcome", "kept")
INTENT = "intent-"
WORK = "work"
NEW = ".new"
REMOVED = ".removed"
PLAN = "plan-"
SUCCESS = "_SUCCESS"
MANIFEST_SUFFIX = "-manifest.json"

_SETUP = re.compile(r"[A-Za-z0-9]{0,64}\Z")
_DIRECTORY = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,127})~([A-Za-z0-9]{0,64})((?:\.new)?(?:\.removed)?)\Z")
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_ATTEMPT: Final = re.compile(r"attempt_([A-Za-z0-9][A-Za-z0-9._-]*_[a-z]_\d{6,})_\d+\Z")
_RUN = re.compile(r"_m_(\d{6,})_(\d+)-([0-9a-f]+)\Z")
_TASK: Final = re.compile(r"_m_(\d{6,})(?:_\d+-[0-9a-f]+)?\Z")
_HADOOP_JOB_ID = re.compile(r"job_([A-Za-z0-9]+_\d+)\Z")


def check_job_id(job_id: object, operation: str = "open_job", shown_by: str = "") -> str:
    """Returns `job_id` if it can name a job, else raises `ConfigurationError`; `shown_by` is a call that lists ids."""
    if not isinstance(job_id, str) or not is_job_id(job_id):
        raise ConfigurationError(
            f"a job id is 1 to 128 of A-Z a-z 0-9 . _ - and starts with a letter or digit, not {job_id!r}",
            operation=operation,
            next_step=f"{shown_by} shows the ids of the jobs that are there"
            if shown_by
            else "give another id, such as 'nightly-2026-01-31', or none: open_job draws one",
        )
    return job_id


def check_setup(name: str) -> str:
    """Returns the nonce of a setup, or an empty one, if it can be part of a path; else raises `ConfigurationError`."""
    if _SETUP.match(name) is None:
        raise ConfigurationError(f"the nonce of a setup is up to 64 of A-Z a-z 0-9, not {name!r}", operation="open_job")
    return name


class DirectoryName(NamedTuple):
    """The parsed name of a job's directory in `_temporary`: the inverse of `JobLayout.unique_id`.

    `setup` is empty for a job of Hadoop's; `suffix` is not empty for a directory that is being made or removed.
    """

    job_id: str
    setup: str
    suffix: str

    @classmethod
    def of(cls, name: str) -> DirectoryName:
        """Parses a name; any other name is the id of a job that Hadoop set up."""
        found = _DIRECTORY.match(name)
        return cls(found[1], found[2], found[3]) if found else cls(name, "", "")


def is_job_id(name: str) -> bool:
    """Returns whether `name` can name a job."""
    return _JOB_ID.match(name) is not None


def check_number(value: object, what: str, operation: str = "open_task") -> int:
    """Returns `value` if it is an int >= 0, as task and attempt numbers must be; else raises `ConfigurationError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(
            f"{what} must be an int >= 0, not {value!r}",
            operation=operation,
            next_step=f"give {what} as a number: 0, 1, 2, ...",
        )
    return value


def task_in(attempt: str) -> str:
    """Returns the task's name in an attempt's; empty if that is none."""
    found = _ATTEMPT.match(attempt)
    return f"task_{found[1]}" if found else ""


def has_nonce(name: str) -> bool:
    """Returns whether a task attempt's directory is one of this engine's; Hadoop's ends with the attempt's number."""
    return _RUN.search(name) is not None


class JobLayout:
    """The paths of one job.

    A committer that keeps task records elsewhere has a subclass, which overrides `_place_records` and
    `_place_own`, and sets `beside_prefix`, `record_suffix` and `record_kind`.

    The module's docstring shows the other paths.

    Args:
        job_attempt: Hadoop's job attempt number; 0 except for jobs that Hadoop set up.
        roots: Directories outside the destination, in the same store, that the caller lets the job write to.
        setup: The nonce of the setup: `JobSpec.setup`.

    Attributes:
        beside_prefix: Prefix of the name of a job's directory among the output, before the job's id; empty
            without one.
        record_suffix: Suffix of the name of a record under its task's name.
        hidden: Prefix of the names of other files beside records without a suffix.
        keeps_elsewhere: Whether records are in a place that the caller named, perhaps on another store.
        record_root: The job's directory in that place; None if records are at the destination.
        unique_id: The name of each of the job's directories, such as the one in `_temporary`: ``J~S``, or J for
            a job of Hadoop's. Hadoop's tasks and drivers with this id use the same directories.
        tasks: The directory of the files to publish, by task attempt or task.
        recorded_tasks: The same directory as records name it.
        sealed: The target of `tasks` when it is sealed: no task attempt knows that path.
        runs: The directory of the directories of running task attempts.
        shared: Directories in `_temporary` that jobs share, the innermost first; the last job removes them.
        setup_name: The nonce of the setup; empty for a job of Hadoop's.
        name_token: Part of file names that no other setup uses (`Capabilities.deletes_by_name`).
        roots: Their absolute paths, without those below another.
        beside: The job's directory among the output, which Hadoop's committer may have made; None without one.
    """

    beside_prefix: ClassVar[str] = ""
    record_suffix: ClassVar[str] = MANIFEST_SUFFIX
    record_kind: ClassVar[str] = "task manifest"
    hidden: ClassVar[str] = ""
    keeps_elsewhere: ClassVar[bool] = False

    def __init__(
        self,
        destination: StorePath,
        job_id: str,
        job_attempt: int = 0,
        roots: Iterable[str | StorePath] = (),
        *,
        setup: str = "",
    ) -> None:
        self.destination = destination
        self.job_id = job_id
        self.job_attempt = job_attempt
        self.setup_name: str = check_setup(setup)
        self.unique_id: str = f"{job_id}~{setup}" if setup else job_id
        self.name_token: str = f"{job_id}-{setup}" if setup else job_id
        self.temporary: StorePath = destination / TEMPORARY
        self.success: StorePath = destination / SUCCESS
        self.entries: StorePath = self.temporary / COMMITTING
        self.shared: tuple[StorePath, ...] = ()
        self.job_directory: StorePath = self.temporary / self.unique_id
        self.building: StorePath = self.temporary / f"{self.unique_id}{NEW}"
        self.removed: StorePath = self.temporary / f"{job_id}~{setup}{REMOVED}"
        self.setup: StorePath = self.job_directory / "setup"
        self.opened: StorePath = self.job_directory / "opened"
        self.decision: StorePath = self.job_directory / "decision"
        self.outcome: StorePath = self.job_directory / "outcome"
        self.kept: StorePath = self.job_directory / "kept"
        self.job_attempt_directory: StorePath = self.job_directory / f"{job_attempt:02d}"
        self.work: StorePath = self.job_directory / WORK if setup else self.job_attempt_directory
        self.work_fenced: StorePath = self.job_directory / f"{WORK}-fenced"
        self.tasks: StorePath = self.job_attempt_directory / "tasks"
        self.recorded_tasks: StorePath = self.tasks
        self.runs: StorePath = self.tasks
        self.sealed: StorePath = self.work / "tasks-sealed"
        self.tasks_fenced: StorePath = self.work / "tasks-fenced"
        beside = destination / f"{self.beside_prefix}{self.unique_id}"
        self.beside: StorePath | None = beside if self.beside_prefix else None
        self.manifests: StorePath
        self.uploads: StorePath
        self.manifests, self.uploads = self._place_records()
        self.record_root: StorePath | None = None
        self.attempts: StorePath = self.job_attempt_directory / "attempts"
        self.superseded: StorePath = self.work / "superseded"
        self.superseded_fenced: StorePath = self.work / "superseded-fenced"
        hadoop = _HADOOP_JOB_ID.match(job_id)
        self._task_stem = hadoop.group(1) if hadoop else job_id
        given = {self.absolute(root) for root in roots}
        self.roots: frozenset[str] = frozenset(root for root in given if root_of(root, given) is None)
        self._place_own()

    def _place_own(self) -> None:
        """Sets the paths that differ from other committers'."""

    def _place_records(self) -> tuple[StorePath, StorePath]:
        """Returns the directories of records under tasks' names, and of the lists of uploads."""
        return self.job_attempt_directory / "manifests", self.job_attempt_directory / "uploads"

    def records_of(self, *, by_listing: bool) -> tuple[StorePath, ...]:
        """Returns the directories of task records that job setup creates."""
        return (self.manifests if by_listing else self.attempts,)

    @property
    def of_attempts(self) -> frozenset[str]:
        """Names of the directories in that of a job attempt, and in `work`."""
        of_tasks = (self.tasks, self.sealed, self.tasks_fenced)
        of_records = (self.manifests, self.attempts, self.uploads)
        return frozenset(place.name for place in (*of_tasks, *of_records, self.superseded, self.superseded_fenced))

    @property
    def is_out_of_reach(self) -> bool:
        """Whether task attempts cannot write to `tasks`."""
        return bool(self.setup_name) and self.tasks.parent == self.work

    @property
    def can_be_sealed(self) -> bool:
        """Whether a decision may have `tasks` renamed to `sealed`. A job of Hadoop's has no directory for it."""
        return bool(self.setup_name) and self.tasks == self.recorded_tasks

    @property
    def is_sealed(self) -> bool:
        """Whether this is the layout of a job with a sealed decision (`committer.stages.publish.promote`)."""
        return self.tasks in (self.sealed, self.superseded)

    def with_tasks_in(self, place: StorePath) -> Self:
        """Returns the layout with another directory of the files to publish."""
        layout = copy.copy(self)
        layout.tasks = place
        return layout

    def target(self, name: str) -> StorePath:
        """Returns the path of a name: below the destination (itself for ""), or an absolute path of its store."""
        if name[:1] == "/":
            return StorePath(self.destination.scheme, self.destination.authority, name)
        return self.destination / name if name else self.destination

    def name_of(self, path: StorePath) -> str:
        """Returns the name of a path, the inverse of `target`: relative below the destination, else absolute."""
        return path.relative_to(self.destination) if path.is_under(self.destination) else path.path

    def absolute(self, place: str | os.PathLike[str] | StorePath) -> str:
        """Returns the absolute path of a URI of the destination's store, or of a path in it; refuses any other."""
        destination = self.destination
        if isinstance(place, StorePath):
            path = place
        else:
            text = os.fspath(place)
            if text.startswith("/") and not text.startswith("//"):
                text = f"{StorePath(destination.scheme, destination.authority, '')}{text}"
            elif not text.startswith("/") and ":" not in text.partition("/")[0]:
                raise InvalidPathError(
                    "a path outside the destination must be absolute",
                    path=ascii(text),
                    next_step="give a URI, or a path that begins with a slash",
                )
            path = StorePath.of(text)
        if (path.scheme, path.authority) != (destination.scheme, destination.authority):
            raise InvalidPathError(
                f"{path} is not in the store of the destination {destination}: a file can only be renamed within one",
                path=path,
                next_step="give a place in the destination's store",
            )
        return path.path

    def task_id(self, task: int) -> str:
        """Returns the task's name in records: ``task_X_N_m_%06d`` for ``job_X_N``, else ``task_<J>_m_%06d``."""
        return f"task_{self._task_stem}_m_{task:06d}"

    def task_attempt_id(self, task: int, attempt: int) -> str:
        """Returns the task attempt's name in records."""
        return f"attempt_{self._task_stem}_m_{task:06d}_{attempt}"

    def task_attempt_directory(self, task: int, attempt: int, nonce: str) -> StorePath:
        """Returns the directory of one run of a task attempt. The nonce keeps two runs of one attempt id apart."""
        return self.runs / f"{self.task_attempt_id(task, attempt)}-{nonce}"

    def stamp(self, run: str) -> str:
        """Returns the stamp of the files of a run, ``<job>/<task>/<attempt>/<nonce>``, by its directory's name."""
        found = _RUN.search(run)
        return f"{self.job_id}/{int(found[1])}/{found[2]}/{found[3]}" if found else f"{self.job_id}/{run}"

    def manifest(self, task: int) -> StorePath:
        """Returns the path of the record under the task's name."""
        return self.manifests / f"{self.task_id(task)}{self.record_suffix}"

    def manifest_temporary(self, task: int, attempt: int, nonce: str) -> StorePath:
        """Returns the path where that record is written first; its suffix keeps readers from taking it for a record."""
        return self.manifests / f"{self.hidden}{self.task_attempt_id(task, attempt)}-{nonce}{self.record_suffix}.tmp"

    def is_record(self, name: str) -> bool:
        """Returns whether a listed name is that of one of this job's records."""
        return name.endswith(self.record_suffix)

    def record_name(self, path: StorePath) -> str:
        """Returns the name of a task's record in other records: its path in the job's directory."""
        return path.relative_to(self.job_directory)

    def record_path(self, name: str) -> StorePath:
        """Returns the path of the record of that name."""
        return self.job_directory / name

    def attempt_record(self, task: int, attempt: int, nonce: str) -> StorePath:
        """Returns the path of the record under the attempt's name."""
        return self.attempts / f"{self.task_attempt_id(task, attempt)}-{nonce}{MANIFEST_SUFFIX}"

    def task_of_record(self, name: str) -> int | None:
        """Returns the task's number from the name of its record or its attempt's record; None for any other name."""
        ends = [suffix for suffix in (self.record_suffix, MANIFEST_SUFFIX) if name.endswith(suffix)]
        found = _TASK.search(name.removesuffix(ends[0])) if ends else None
        return int(found[1]) if found else None

    def parse_attempt_record(self, name: str) -> tuple[int, int, str] | None:
        """Returns task, attempt and nonce from the name of a record in `attempts`; None for any other name."""
        found = _RUN.search(name.removesuffix(MANIFEST_SUFFIX))
        if found is None:
            return None
        task, attempt, nonce = int(found[1]), int(found[2]), found[3]
        return (task, attempt, nonce) if self.attempt_record(task, attempt, nonce).name == name else None

    def temporary_of(self, record: StorePath, driver: str) -> StorePath | None:
        """Returns the path where a driver writes a record first; None for a job of Hadoop's: the store chooses."""
        return self.work / f"{record.name}-{driver}.tmp" if self.setup_name else None

    def intent(self, driver: str) -> StorePath:
        """Returns the path of a driver's intent."""
        return self.job_directory / f"{INTENT}{driver}"

    def entry(self, driver: str, *, replaces: bool) -> StorePath:
        """Returns the path of a driver's entry. No id, setup or driver contains a ``~``."""
        return self.entries / f"{self.unique_id}~{driver}.{'replace' if replaces else 'append'}"

    def plan_file(self, number: int, driver: str) -> StorePath:
        """Returns the path of the `number`th side file of a driver's decision."""
        return self.job_directory / f"{PLAN}{number:05d}-{driver}"

    def probe_in(self, root: str) -> StorePath:
        """Returns the empty directory by which setup tests renames into a root."""
        return self.target(root) / f".committer-probe-{self.unique_id}"

    @property
    def unique_name(self) -> str:
        """The job's name where jobs of other destinations, perhaps with the same id, leave files too."""
        return f"{self.job_id}-{hashlib.sha256(str(self.destination).encode(errors='surrogatepass')).hexdigest()[:12]}"

    def summary(self, report_directory: StorePath) -> StorePath:
        """Returns the path of the summary report: Hadoop's name, which a job of another destination may share."""
        return report_directory / f"summary-{self.job_id}.json"
