"""Holds the calls of each process against the protocol: it takes only steps that the table allows where its job is.

A process knows of a job what the store answered it: records that it created or read, and what listings showed.
`classify` says where that puts the job, and `STEPS` what may follow; each call that changes a job or its destination is
part of some step. Other rules are of calls alone: a driver creates its entry, lists the entries, then decides; no name
in `_temporary` is given twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from committer.committers.standing import DECIDING, STEPS, Seen, Standing, Step, classify
from committer.errors import CommitterError, StoreNotADirectoryError, StoreNotFoundError
from committer.layout import COMMITTING, INTENT, NEW, RECORDS, REMOVED, SUCCESS, WORK, DirectoryName
from committer.paths import StorePath
from committer.records.job_state import DecisionHead, JobOpened, JobOutcome, decode_record
from committer.stages.load.winning_records import ABORTED
from committer.testing.faults import Call
from committer_testing.simulate.contents import job_of
from committer_testing.simulate.worlds import MAGIC, OUT, TEMPORARY, MemoryWorld

_ABOVE: Final = f"/{OUT}/{TEMPORARY}/"
_MISSING: Final = (StoreNotFoundError, StoreNotADirectoryError)
_PUBLISHES: Final = frozenset({Step.PUBLISH})
_DECIDES_AGAINST: Final = frozenset({Step.DECIDE_AGAINST, Step.REMOVE_REST})
_MOVES_OLD: Final = frozenset({Step.PUBLISH, Step.UNDO})
_DELETES: Final = frozenset({Step.PUBLISH, Step.UNDO, Step.FINISH})
_REMOVES: Final = frozenset({Step.FINISH, Step.CLEAN_UP_ABORTED, Step.CLEAN_UP_UNDONE, Step.REMOVE_REST})
_DELETE_CALLS: Final = frozenset({"delete_file", "delete_files", "delete_file_if"})
# What the driver that brought a job there knows of it beside its records.
_ALSO: Final = {Standing.DECIDED: Standing.REFUSED, Standing.ROLLED_BACK: Standing.UNDONE}


class Known:
    """Knowledge of one process about one job's directory, from the responses of the store.

    Attributes:
        seen: The records.
        was: Where that put the job, at each answer.
        listed: Whether it listed the directory; a worker, which a driver told of the decision, does not.
        looked: The records after which the process looked for `setup`, and found it.
        makes: Whether the process is setting the job up.
        made_at: The number of the answer that told that its directory, or its entry, is there.
        removes: Whether it began to remove the job's directory.
        sent: How many decisions to commit it sent that may have taken effect.
        publishing: How many of its publish actions have no answer yet.
    """

    def __init__(self) -> None:
        # What a spec, or a chunk of files to publish, says before anything is read.
        self.seen: Seen = Seen(anything=True, setup=True, opened="open")
        self.was: set[Standing] = set()
        self.listed: bool = False
        self.looked: set[str] = set()
        self.makes: bool = False
        self.made_at: int = 0
        self.removes: bool = False
        self.sent: int = 0
        self.publishing: int = 0

    def allows(self, steps: AbstractSet[Step]) -> bool:
        """Whether one of these steps may follow where the job stands."""
        standing = classify(self.seen)
        return any(steps & {*STEPS[one].values()} for one in {standing, _ALSO.get(standing, standing)})


class Rules:
    """Rules for the calls of one process.

    Args:
        world: The store, seen past the process.
        find: Called with what broke a rule.
    """

    def __init__(self, world: MemoryWorld, find: Callable[[str], None]) -> None:
        self._world = world
        self._find = find
        self._known: dict[str, Known] = defaultdict(Known)
        self._answers = 0
        # Entries that it sent; when one was created, and a directory was listed.
        self._sent: set[str] = set()
        self._entries: dict[str, int] = {}
        self._listed: dict[str, int] = defaultdict(int)
        can = world.store().capabilities
        self._identities: bool = can.identity
        self._looks_again: bool = not (can.refuses_late_writes and can.atomic_directory_rename)

    # -- what it sends --------------------------------------------------------------------------------------------

    def sends(self, operation: str, path: StorePath, destination: StorePath | None, data: bytes | None) -> None:
        """A call sets out."""
        job, name = _place(path)
        if path.path.startswith(f"/{OUT}/{MAGIC}"):
            return
        if destination is not None:
            self._moves(operation, path, destination)
        elif name == "" and job and operation == "make_directory":
            self._known[job.removesuffix(NEW)].makes = True
        elif name == "" and job and operation == "delete_directory":
            self._removes(job)
        elif operation.endswith("_if") and job and not name[:1].isdecimal():
            # A task attempt's record may be another's by now, where it has the task's name.
            self._find(f"{path.name}, in _temporary, is deleted on a condition")
        elif job == COMMITTING:
            self._sends_entry(operation, path.name)
        elif job and operation in _DELETE_CALLS and name == "setup":
            self._removes(job)
        elif job and operation == "put" and data is not None:
            self._puts(job, name, data)
        elif not job and path.name == SUCCESS and operation == "put" and data is not None:
            self._puts_success(data)
        elif not job and operation == "complete_upload":
            self._needs_any(_PUBLISHES, f"{path.name} is published")
        elif not job and operation == "put_block_list":
            self._needs_any(_MOVES_OLD, f"{path.name} is published, or its blocks are used up")
        elif not job and operation in _DELETE_CALLS:
            self._needs_any(_DELETES, f"{path.name} is deleted")

    def _moves(self, operation: str, source: StorePath, target: StorePath) -> None:
        (job, name), (into, _aside) = _place(source), _place(target)
        if not job and into:
            self._needs(into, _MOVES_OLD, f"{source.name} is moved aside")
        elif job and not into and target.name == SUCCESS:
            back = name.startswith(f"{WORK}/superseded")
            self._needs(job, _MOVES_OLD if back else {Step.FINISH}, "_SUCCESS is moved to the destination")
            if not back:
                self._has_looked(job, "outcome", "_SUCCESS is written")
        elif job and not into and not target.name.startswith(".committer-probe-"):
            back = name.startswith(f"{WORK}/") and "sealed" not in name
            self._needs(job, _MOVES_OLD if back else _PUBLISHES, f"{target.name} is published, or put back")
            if not back:
                self._has_looked(job, "decision", f"{target.name} is published")
                self._known[job].publishing += 1
        elif operation == "rename_directory" and name == "" and into.endswith(REMOVED):
            self._removes(job)

    def _puts(self, job: str, name: str, data: bytes) -> None:
        known = self._known[job]
        if name == "setup":
            self._known[job.removesuffix(NEW)].makes = True
        elif name == "opened" and decode_record(data, JobOpened, source=name).state == "open":
            if known.made_at > self._listed[TEMPORARY]:
                self._find(f"{job} is opened before _temporary was listed")
        elif name.startswith(INTENT):
            self._needs(job, DECIDING, "an intent is declared")
        elif name == "decision":
            commits = decode_record(data, DecisionHead, source=name).decision == "commit"
            # Where a setup record came a second time, an abort of the job that is over decides against it once more.
            self._needs(job, DECIDING if commits else _DECIDES_AGAINST, f"{name} is created")
            if commits:
                self._is_entered(job)
                known.sent += 1
        elif name == "outcome":
            committed = decode_record(data, JobOutcome, source=name).outcome == "committed"
            # The request may be sent again after its answer was lost, and others removed the job in between.
            if Standing.DECIDED not in known.was or classify(known.seen) is not Standing.GONE:
                self._needs(job, _PUBLISHES if committed else {Step.TAKE_BACK}, f"{name} is created")
            self._has_looked(job, "decision", f"{name} is created")
            if committed and known.publishing:
                self._find(f"{job} is said to be committed while publish actions are under way")
        elif name == "kept":
            # True however late, so that the process may have learned since that another one removed the job.
            if Standing.COMMITTED not in known.was:
                self._find(f"the outcome is kept where {job} was never seen committed")
            self._has_looked(job, "outcome", "the outcome is kept")

    def _puts_success(self, data: bytes) -> None:
        job = "~".join(job_of(data))
        # A rollback puts that of another job back, whose directory the process may have looked at.
        if data.endswith(b" ") or job not in self._known or not self._known[job].allows({Step.FINISH}):
            # A driver puts back what it moved aside while another one ended the job and removed it. It never moves its
            # own marker, unless files have no identity (docs/guarantees.md, the second exception for `_SUCCESS`).
            own = self._identities and job in self._known
            if own or all(Standing.DECIDED not in known.was for known in self._known.values()):
                self._needs_any({Step.UNDO}, "_SUCCESS is put back")
            return
        self._needs(job, {Step.FINISH}, "_SUCCESS is written")
        self._has_looked(job, "outcome", "_SUCCESS is written")

    def _sends_entry(self, operation: str, entry: str) -> None:
        job = entry.rpartition("~")[0]
        if operation == "put":
            self._needs(job, DECIDING, "an entry is created")
            self._sent.add(entry)
        elif operation in _DELETE_CALLS:
            own = entry in self._sent and not self._known[job].sent
            if not own and self._is_live(job):
                self._find(f"the entry {entry} is deleted, and its job is live")

    def _is_live(self, job: str) -> bool:
        directory = f"{OUT}/{TEMPORARY}/{job}/"
        decision = self._world.read(f"{directory}decision")
        if decision is not None and decode_record(decision, DecisionHead, source=job).decision == "abort":
            return False
        names = self._world.directories() | self._world.files().keys()
        # A write of a driver that stood still may have made `work` again, without what the setup made in it. The driver
        # looks for `setup` then, and no rename creates the directory that old files are moved into.
        made = f"{directory}{WORK}/superseded" in names
        stays = made and any(f"{directory}{record}" in names for record in RECORDS)
        # A setup record that comes a second time stands alone.
        return stays or {f"{directory}setup", f"{directory}opened"} <= names

    def _is_entered(self, job: str) -> None:
        own = [at for entry, at in self._entries.items() if entry.startswith(f"{job}~")]
        if not own or self._listed[COMMITTING] < max(own):
            self._find(f"{job} is decided before its entry was created and the entries were listed")
        if not self._known[job].seen.intent:
            self._find(f"{job} is decided without an intent")

    def _removes(self, job: str) -> None:
        known = self._known[job]
        # A write of its own, after it saw the job gone, may have made the directory again.
        gone = classify(known.seen) is Standing.KEPT or Standing.GONE in known.was
        if not (known.makes or known.removes or gone or DirectoryName.of(job).suffix):
            self._needs(job, _REMOVES, "the job's directory is removed")
        known.removes = True

    def _has_looked(self, job: str, record: str, what: str) -> None:
        """Checks that the process looked for `setup` after the record of a step, if the directory can outlast it."""
        known = self._known[job]
        if self._looks_again and known.listed and record not in known.looked:
            self._find(f"{what}, and setup was not looked for since {record} was read or created")

    def _needs(self, job: str, steps: AbstractSet[Step], what: str) -> None:
        known = self._known[job]
        if "~" in job and not known.allows(steps):
            self._find(f"{what} where {job} is {classify(known.seen).value}")

    def _needs_any(self, steps: AbstractSet[Step], what: str) -> None:
        if not any(known.allows(steps) for known in self._known.values()):
            standings = {job: classify(known.seen).value for job, known in self._known.items()}
            self._find(f"{what} where jobs are {standings}")

    # -- what it is answered --------------------------------------------------------------------------------------

    def answered(
        self, operation: str, path: StorePath, destination: StorePath | None, data: bytes | None, answer: object
    ) -> None:
        """A call is answered, perhaps by an error."""
        self._answers += 1
        job, name = _place(path)
        if destination is not None:
            if job and not _place(destination)[0] and self._known[job].publishing:
                self._known[job].publishing -= 1
            elif operation == "rename_directory" and name == "" and job:
                into = _place(destination)[0]
                if not isinstance(answer, CommitterError) and not into.endswith(REMOVED):
                    self._known[into].made_at = self._answers
                    self._tell(into, "setup", b"")
                elif not isinstance(answer, CommitterError) or isinstance(answer, _MISSING):
                    self._known[job].seen = Seen()
        elif job == COMMITTING:
            if operation == "put" and not isinstance(answer, CommitterError):
                self._entries[path.name] = self._answers
        elif not job or "/" in name:
            return
        elif operation == "put":
            self._is_put(self._known[job], job, name, data, answer)
        elif operation in {"read", "status"} and isinstance(answer, _MISSING):
            self._tell(job, name, None)
        elif operation == "read" and isinstance(answer, bytes):
            self._tell(job, name, answer)
        elif operation == "status" and not isinstance(answer, CommitterError) and name in {"setup", "opened"}:
            self._tell(job, name, self._world.read(path.path[1:]))
        elif operation in _DELETE_CALLS and not isinstance(answer, CommitterError):
            self._tell(job, name, None)

    def _is_put(self, known: Known, job: str, name: str, data: bytes | None, answer: object) -> None:
        if not isinstance(answer, CommitterError):
            known.made_at = known.made_at if name != "setup" else self._answers
            self._tell(job, name, data)
        elif name == "decision" and answer.outcome == "unchanged":
            known.sent -= 1

    def listed(self, directory: StorePath, names: Iterable[str]) -> None:
        """A listing came to its end; without names also where there is no such directory."""
        self._answers += 1
        found = {*names}
        job, name = _place(directory)
        if directory.path == _ABOVE[:-1]:
            self._listed[TEMPORARY] = self._answers
            for gone in self._known.keys() - found:
                self._known[gone].seen = Seen()
                self._known[gone].was.add(Standing.GONE)
        elif job == COMMITTING:
            self._listed[COMMITTING] = self._answers
        elif job and not name:
            known = self._known[job]
            known.listed = True
            intent = any(one.startswith(INTENT) for one in found)
            known.seen = known.seen._replace(anything=bool(found), intent=intent)
            # A driver that carries a decision out looks for `setup` alone. Where another driver has just kept the
            # outcome, names that are taken, and then the fence, bar what it still sends.
            goes_on = known.seen.decision == "commit" and "setup" in found
            for record in RECORDS:
                if record == "kept" and goes_on:
                    continue
                if record not in found:
                    self._tell(job, record, None)
                elif record in {"setup", "opened", "kept"}:
                    self._tell(job, record, self._world.read(f"{directory.path[1:]}/{record}"))
            # It has returned from the setup: from here on it goes by what it sees.
            known.makes = known.makes and "opened" not in found

    def _tell(self, job: str, record: str, data: bytes | None) -> None:
        known = self._known[job]
        if data is not None:
            known.seen = known.seen._replace(anything=True)
        if record.startswith(INTENT):
            known.seen = known.seen._replace(intent=data is not None or known.seen.intent)
        elif record in RECORDS:
            before, now = getattr(known.seen, record), _said(record, data)
            if before == "abort" and now == "commit":
                # The decision of a stale driver, created in the directory of a job that was aborted and removed.
                now = before
            if record == "setup" and now:
                known.looked.update(one for one in ("decision", "outcome") if getattr(known.seen, one) is not None)
            elif now is not None and before != now:
                known.looked.discard(record)
            known.seen = known.seen._replace(**{record: now})  # type: ignore[arg-type]
            if before and not now and record != "setup":
                # A removal has begun: nothing else takes a record away.
                known.seen = known.seen._replace(opened="closed")
        known.was.add(classify(known.seen))


def _said(record: str, data: bytes | None) -> object:
    if record in {"setup", "kept"}:
        return data is not None
    if data is None:
        return None
    if record == "opened":
        return decode_record(data, JobOpened, source=record).state
    if record == "decision":
        return decode_record(data, DecisionHead, source=record).decision
    return decode_record(data, JobOutcome, source=record).outcome


def _place(path: StorePath) -> tuple[str, str]:
    """The name of the directory in `_temporary` that a path lies in, and its name there; empty for any other."""
    job, _, name = path.path[len(_ABOVE) :].partition("/") if path.path.startswith(_ABOVE) else ("", "", "")
    return job, name


def _is_task_record(name: str) -> bool:
    return name.startswith("task_") or (ABORTED in name and name.endswith(".tmp"))


class Names:
    """Contents that processes gave to each name in `_temporary`."""

    def __init__(self, world: MemoryWorld, find: Callable[[str], None]) -> None:
        self._world = world
        self._find = find
        self._given: dict[str, bytes] = {}
        self._identities: bool = world.store().capabilities.identity

    def note(self, call: Call) -> None:
        """A call had its effect."""
        path = call.destination or call.path
        job, name = _place(path)
        if name == f"{WORK}/superseded/{SUCCESS}" and not self._identities:
            # The second exception for `_SUCCESS`: a recoverer moves the marker aside that the driver just wrote.
            return
        if not name or DirectoryName.of(job).suffix or name in RECORDS or _is_task_record(path.name):
            # By listing the last attempt of a task that commits gives the task's record its name. An abort that takes
            # another attempt's away by that name puts it back, or a job commit does. `JobWatch` looks at
            # the job's own records: where the job is over a driver may create one, looks, and deletes it.
            return
        if call.operation.removesuffix(" (late)") in {"put", "close_writer", "rename_file", "link_file"}:
            data = self._world.read(path.path[1:])
            if data is not None and self._given.setdefault(path.path, data) != data:
                self._find(f"{path.path} was given twice, with another content")
