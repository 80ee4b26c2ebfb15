"""What is seen of one job's fate: its decision and its outcome, which may each be made once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from committer.records.job_state import Decision, JobOutcome, JobSetup, decode_record
from committer.testing.simulate.contents import job_of
from committer.testing.simulate.ledger import Attempt, Ledger
from committer.testing.simulate.worlds import World, places_of


class JobWatch:
    """Looks at the records of one job.

    A decision counts only beside the job's setup record, an outcome only beside both: where late writes are taken a
    driver may create them once more for a job that is cleaned up, and takes them back.

    Of an id that is set up anew each setup is a job of its own: what counts is of that setup, which its records name.
    A driver whose setup record was ended before it heard that it stood sets its job up once more, under another name:
    what was decided of the one before is of a job that is over.

    Args:
        job_id: The job.
        ledger: What its tasks did.
        world: The channel.

    Attributes:
        setups: The names of its setup, as its driver made it; None for the only setup of its id: all that stands there
            is its own.
        claims: The names under which operators claimed the id, to remove what held no record of a job: what they decide
            then is of no job.
        disturbed: Whether a late call of an earlier setup's replaced by name what is its own.
        own: The job's directory, as the start of names in it.
        places: That, and Hadoop's directory for the job's uploads that wait.
        decided: Whether a commit decision was seen, or a model of another committer said so.
        aborted: Whether an abort decision was seen.
        outcome: The first outcome seen.
        ended_at: When its driver says that it ended, in milliseconds, as `_SUCCESS` tells it; 0 before that, and for a
            model of another committer.
        replacing: Whether the job said that it takes old files away.
        running: Whether it is decided and not ended.
        superseded: Files that stood there at its decision and that it takes away.
        blocking: Files that stood there at its decision where they cannot stay.
        targets: Files that stood there at its decision under names that it writes.
        removes_before_outcome: Whether superseded files are gone by the time of the outcome, else by that of
            `_SUCCESS`.
        leaving: Files that still stood there at its outcome and are about to be taken away.
        may_leave: Likewise, of another job or user that wrote them when the job may already have looked what it takes
            away.
        finished: Whether an outcome was seen that says that nothing but cleaning is left.
        just_decided: Whether the last look was the first that saw the decision.
        just_committed: Whether the last look was the first that saw the job committed.
    """

    def __init__(self, job_id: str, ledger: Ledger, world: World) -> None:
        self.job_id = job_id
        self.ledger = ledger
        self.setups: set[str] | None = set() if ledger.shared_id else None
        self.claims: set[str] = set()
        self.disturbed: bool = False
        there = ledger.shared_id or job_id
        self.places: tuple[str, str] = places_of(there)
        self.own: str = self.places[0]
        self.decided: bool = False
        self.aborted: bool = False
        self._over = False
        self.outcome: str | None = None
        self.ended_at: int = 0
        self.replacing: bool = ledger.config.conflict_mode == "replace"
        self.superseded: set[str] = set()
        self.blocking: set[str] = set()
        self.targets: set[str] = set()
        self.removes_before_outcome: bool = world.store().capabilities.atomic_file_rename
        self.leaving: set[str] = set()
        self.may_leave: set[str] = set()
        self.finished: bool = False
        self.just_decided: bool = False
        self.just_committed: bool = False
        self._world = world
        self._said: str | None = None
        self._decision: bytes | None = None
        self._outcome: bytes | None = None
        self._names: set[str] = set()
        self._given_up: set[str] = set()

    def note_setup(self, setup: str) -> None:
        """A setup record of its driver stands, of that name."""
        if setup not in self._names and self.aborted and not self.ledger.attempts:
            self._given_up |= self._names
            self.aborted = self._over = False
            self._decision = None
        self._names.add(setup)
        if self.setups is not None:
            self.setups.add(setup)

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
        """Whether the outcome of a committed job stands, marked to be kept, and nothing else of the job does."""
        data = self._world.read(f"{self.own}outcome")
        names = [name for name in (*self._world.files(), *self._world.directories()) if name.startswith(self.places)]
        if data is None or names != [f"{self.own}outcome"]:
            return False
        outcome = decode_record(data, JobOutcome, source="outcome")
        return self._is_own(outcome.setup) and outcome.kept and outcome.finished and outcome.outcome == "committed"

    def look(self) -> str | None:
        """Reads the records; says what is wrong with them."""
        self.just_decided = self.just_committed = False
        if self._said is not None:
            self._obey_model()
            return None
        decision = self._world.read(f"{self.own}decision")
        set_up = self.stands()
        self._over = self._over or ((self.aborted or self.outcome is not None) and not set_up)
        if decision is None or (decision != self._decision and not set_up):
            return None
        problem = None
        if decision != self._decision:
            problem = self._note_decision(decision)
        outcome = self._world.read(f"{self.own}outcome")
        if outcome is not None and outcome != self._outcome and set_up:
            problem = problem or self._note_outcome(outcome)
        return problem

    def stands(self) -> bool:
        """Whether its setup record stands."""
        data = self._world.read(f"{self.own}setup")
        if data is None or (self.setups is None and not self.claims and not self._given_up):
            return data is not None
        return self._is_own(decode_record(data, JobSetup, source="setup").spec.setup)

    def _is_own(self, setup: str) -> bool:
        own = setup not in self.claims if self.setups is None else setup in self.setups
        return own and setup not in self._given_up

    def _note_decision(self, data: bytes) -> str | None:
        changed = self._decision is not None
        decision = decode_record(data, Decision, source="decision")
        if not self._is_own(decision.setup):
            return None
        if self.outcome is not None and decision.decision == "abort":
            # A late request made the setup record of a job that is over once more, and an operator cleans that up.
            return None
        self._decision = data
        if changed and self.aborted and decision.decision == "abort":
            # Likewise, of a job that was aborted.
            return None
        if changed and self._over:
            # Its setup record was gone, and a late request made it once more. Its own driver may decide beside it,
            # and takes it back once it looked; whatever would come of it, a file or an outcome, is found by itself.
            return None
        if changed:
            return f"G7: {self.job_id} was decided, and then decided again"
        self.aborted = decision.decision == "abort"
        self.decided = self.just_decided = not self.aborted
        if self.decided and self.setups is not None and self.ledger.commit_began is None:
            return f"G4: {self.job_id} was decided to be committed, and no driver of its setup had begun to"
        self.replacing = self.replacing or decision.replacing
        return None

    def _note_outcome(self, data: bytes) -> str | None:
        outcome = decode_record(data, JobOutcome, source="outcome")
        if not self._is_own(outcome.setup):
            return None
        before, self._outcome = self._outcome, data
        self.finished = self.finished or outcome.finished
        if before is not None:
            ended = decode_record(before, JobOutcome, source="outcome")
            kept = self.ledger.config.outcome_kept and ended.outcome == "committed"
            if outcome in (ended, msgspec.structs.replace(ended, finished=True, kept=kept)):
                # Only that nothing but cleaning is left was added, and whether it stays.
                return None
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
        if watch.setups is None:
            if watch.job_id == job_id:
                return watch
        elif watch.ledger.shared_id == job_id and setup in watch.setups:
            return watch
    return None
