"""Watch over the decision and the outcome of one job, each of which may be created once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from committer.records.job_state import Decision, JobOpened, JobOutcome, decode_record
from committer_testing.simulate.contents import job_of
from committer_testing.simulate.ledger import Attempt, Ledger
from committer_testing.simulate.worlds import World, directory_of, places_of


class JobWatch:
    """Looks at the records of one job.

    A decision counts only beside the setup record and `opened`, an outcome only beside all three: where late writes are
    taken a driver may create them once more in the directory of a job that is over, and deletes them again.

    Each setup has a directory of its own. Of an id that is set up again each setup is a job of its own. A driver whose
    setup is ended before it returns sets the job up again: then the last setup counts.

    Args:
        job_id: The job.
        ledger: What its tasks did.
        world: The channel.

    Attributes:
        setups: The setups that its driver made.
        set_up_late: Whether a request to create its setup record came late.
        shared_id: Its id, which other jobs of the run may have, too.
        places: The path prefixes of what it keeps for itself.
        decided: Whether a commit decision was seen, or a model of another committer said so.
        aborted: Whether an abort decision of its last setup was seen.
        outcome: The first outcome seen.
        ended_at: When its driver says that it ended, in milliseconds, as `_SUCCESS` tells it; 0 before that, and for a
            model of another committer.
        replacing: Whether the job said that it takes old files away.
        running: Whether it is decided and not ended.
        superseded: Files that existed there at its decision and that it takes away.
        blocking: Files that existed there at its decision where they cannot stay.
        targets: Files that existed there at its decision under names that it writes.
        removes_before_outcome: Whether superseded files are gone by the time of the outcome, else by that of
            `_SUCCESS`.
        on_objects: Whether its store has no real directories.
        leaving: Files that still existed there at its outcome and are about to be taken away.
        may_leave: Likewise, of another job or user that wrote them when the job may already have looked what it takes
            away.
        finished: Whether it ended, and is not live any more.
        just_decided: Whether the last look was the first that saw the decision.
        just_committed: Whether the last look was the first that saw the job committed.
    """

    def __init__(self, job_id: str, ledger: Ledger, world: World) -> None:
        self.job_id = job_id
        self.ledger = ledger
        self.setups: set[str] = set()
        self.set_up_late: bool = False
        self.shared_id: str = ledger.shared_id or job_id
        self.places: tuple[str, ...] = places_of(self.shared_id)
        self.decided: bool = False
        self.aborted: bool = False
        self.outcome: str | None = None
        self.ended_at: int = 0
        self.replacing: bool = ledger.config.conflict_mode == "replace"
        self.superseded: set[str] = set()
        self.blocking: set[str] = set()
        self.targets: set[str] = set()
        self.removes_before_outcome: bool = world.store().capabilities.atomic_file_rename
        self.on_objects: bool = not world.store().capabilities.directories
        self.leaving: set[str] = set()
        self.may_leave: set[str] = set()
        self.finished: bool = False
        self.just_decided: bool = False
        self.just_committed: bool = False
        self._world = world
        self._said: str | None = None
        self._decisions: dict[str, bytes] = {}
        self._outcomes: dict[str, bytes] = {}

    def note_setup(self, setup: str) -> None:
        """Its driver makes a directory for a setup of that name."""
        if setup not in self.setups:
            self.setups.add(setup)
            self.aborted = False

    @property
    def committed(self) -> bool:
        """Whether the job ended committed."""
        return self.outcome == "committed"

    @property
    def running(self) -> bool:
        """Whether it is decided and not ended."""
        return self.decided and self.outcome is None

    @property
    def unfinished(self) -> bool:
        """Whether it is decided and has more to do than to clean up."""
        return self.decided and not self.finished and self._said is None

    def kept_of(self, attempt: Attempt, jobs: Iterable[JobWatch]) -> set[bytes]:
        """What of an attempt's files must exist somewhere until its job ended.

        On flat accounts blocks belong to the name that a file will have. Other jobs that make a file there, or take one
        back, may drop them; and another user's file drops those that waited when it was put there.
        """
        world = self._world
        if not world.store().capabilities.block_lists:
            return {*attempt.files.values()}
        others = {name for other in jobs if other is not self for name in other.ledger.all_names()}
        return {
            data
            for name, data in attempt.files.items()
            if name not in others and not any(block in data for block in world.dropped(world.name_of(name)))
        }

    def decide(self) -> None:
        """Another committer's model begins its job commit."""
        self._said = "commit"

    def commit(self) -> None:
        """Another committer's model says that its job is committed."""
        self._said = "committed"

    def is_kept(self) -> bool:
        """Whether the copy of the outcome stands that a committed job keeps, with `opened`, and nothing else of it."""
        names = {*self._world.files(), *self._world.directories()}
        of_id = [directory_of(self.shared_id, setup) for setup in self._world.setups_of(self.shared_id)]
        # Where a driver that stood still kept an earlier run's outcome too, who asks for the id finds only one of them.
        several = sum(f"{directory}kept" in names for directory in of_id) > 1
        for directory in (directory_of(self.shared_id, setup) for setup in self._directories()):
            data = self._world.read(f"{directory}kept")
            inside = {name for name in names if name.startswith(directory)}
            if several:
                inside = {name for name in inside if not name.startswith(f"{directory}00")}
            if data is not None and inside == {f"{directory}kept", f"{directory}opened"}:
                return decode_record(data, JobOutcome, source="kept").outcome == "committed"
        return False

    def look(self) -> str | None:
        """Reads the records; says what is wrong with them."""
        self.just_decided = self.just_committed = False
        if self._said is not None:
            self._obey_model()
            return None
        problem, live = None, False
        for setup in self._directories():
            directory = directory_of(self.shared_id, setup)
            if setup and not self._is_open(directory):
                continue
            live = True
            decision = self._world.read(f"{directory}decision")
            if decision is None:
                continue
            if decision != self._decisions.get(setup):
                problem = problem or self._note_decision(setup, decision)
            outcome = self._world.read(f"{directory}outcome")
            if outcome is not None and outcome != self._outcomes.get(setup):
                problem = problem or self._note_outcome(setup, outcome)
        self.finished = self.finished or (self.outcome is not None and not live)
        return problem

    def stands(self) -> bool:
        """Whether its setup record stands."""
        directories = (directory_of(self.shared_id, setup) for setup in self._directories())
        return any(self._world.read(f"{directory}setup") is not None for directory in directories)

    def open_setups(self) -> list[str]:
        """The setups of its id, whichever driver made them, that are open: at most one at a time."""
        found = self._world.setups_of(self.shared_id) - {""}
        return sorted(setup for setup in found if self._is_open(directory_of(self.shared_id, setup)))

    def _is_open(self, directory: str) -> bool:
        opened = self._world.read(f"{directory}opened")
        if opened is None or self._world.read(f"{directory}setup") is None:
            return False
        return decode_record(opened, JobOpened, source="opened").state == "open"

    def _directories(self) -> list[str]:
        found = self._world.setups_of(self.shared_id)
        return sorted(found & self.setups if self.ledger.shared_id else found)

    def _note_decision(self, setup: str, data: bytes) -> str | None:
        decision = decode_record(data, Decision, source="decision")
        # An operator may have decided against a setup that its driver then made once more.
        again = setup in self._decisions or self.decided
        self._decisions[setup] = data
        if again:
            return f"G7: {self.job_id} was decided, and then decided again"
        self.aborted = decision.decision == "abort"
        self.decided = self.just_decided = not self.aborted
        if self.decided and self.ledger.shared_id and self.ledger.commit_began is None:
            return f"G4: {self.job_id} was decided to be committed, and no driver of its setup had begun to"
        self.replacing = self.replacing or decision.replacing
        return None

    def _note_outcome(self, setup: str, data: bytes) -> str | None:
        outcome = decode_record(data, JobOutcome, source="outcome")
        again = bool(self._outcomes)
        self._outcomes[setup] = data
        if again:
            return f"G7: {self.job_id} ended {self.outcome}, and then {outcome.outcome}"
        if self.aborted:
            return f"G4: {self.job_id} was decided to be aborted and ended {outcome.outcome}"
        self.outcome = outcome.outcome
        self.ended_at = int(datetime.fromisoformat(outcome.created).timestamp() * 1000)
        self.just_committed = outcome.outcome == "committed"
        return None

    def _obey_model(self) -> None:
        self.just_decided, self.decided = not self.decided, True
        if self._said == "committed" and self.outcome is None:
            self.outcome, self.just_committed = "committed", True


def speaker_of(marker: bytes | None, watches: Iterable[JobWatch]) -> JobWatch | None:
    """The job that a `_SUCCESS` is of."""
    job_id, setup = job_of(marker)
    for watch in watches:
        if not watch.ledger.shared_id:
            if watch.job_id == job_id:
                return watch
        elif watch.ledger.shared_id == job_id and setup in watch.setups:
            return watch
    return None
