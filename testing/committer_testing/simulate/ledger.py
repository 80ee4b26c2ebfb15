"""Ledger of the task attempts of a job: their files, how they ended, and so the output that a commit may publish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from committer.options.config import CommitterConfig

AttemptState: TypeAlias = Literal["writing", "failed", "unknown", "committed"]


@dataclass
class Attempt:
    """What one task attempt wrote, and how it ended as far as its engine knows.

    Attributes:
        task: The task's number.
        attempt: The attempt's number.
        files: Names, relative to the destination or absolute, and contents.
        state: ``writing`` until it tries to commit, ``unknown`` while it does and when the caller cannot tell whether
            it did.
        began: When its commit began, on the clock of the code that keeps the ledger.
        ended: When its commit was over.
        repeated: Whether one of its requests may have arrived again, after everything else.
    """

    task: int
    attempt: int
    files: dict[str, bytes]
    state: AttemptState = "failed"
    began: float = 0.0
    ended: float = 0.0
    repeated: bool = False


@dataclass
class Ledger:
    """What every attempt of a job did, in the order they were noted in.

    Attributes:
        tasks: How many tasks the job has.
        config: The job's choices.
        attempts: Those that began.
        named: The attempt that messages name as the winner of each task; None when a listing decides.
        others: What the messages of further drivers name.
        commit_began: When a driver first began to commit; None when none did.
        shared_id: The job's id, where another setup of it happens too; empty where it is the only one of its id.
    """

    tasks: int
    config: CommitterConfig
    attempts: list[Attempt] = field(default_factory=list)
    named: dict[int, int] | None = None
    others: list[dict[int, int]] = field(default_factory=list)
    commit_began: float | None = None
    shared_id: str = ""

    def note(self, attempt: Attempt) -> None:
        """An attempt is there from now on."""
        self.attempts.append(attempt)

    def may_win(self, task: int) -> list[Attempt]:
        """The attempts of a task whose output a commit may publish."""
        found = [one for one in self.attempts if one.task == task and one.state in {"unknown", "committed"}]
        if self.named is not None:
            chosen = {choice.get(task) for choice in (self.named, *self.others)}
            return [one for one in found if one.attempt in chosen]
        return [one for one in found if not any(self._replaced(one, other) for other in found)]

    def is_one_choice(self, winners: Mapping[int, int]) -> bool:
        """Whether these attempts, by task, are what one driver chose, and not some of two drivers' choices each."""
        return self.named is None or not self.others or winners in (self.named, *self.others)

    def _replaced(self, one: Attempt, other: Attempt) -> bool:
        """Whether the record of one attempt was surely replaced by another's before any driver looked for records."""
        if one is other or one.repeated or "unknown" in {one.state, other.state} or other.began < one.ended:
            return False
        return self.commit_began is None or other.ended < self.commit_began

    def all_names(self) -> set[str]:
        """Every name that any attempt writes."""
        return {name for attempt in self.attempts for name in attempt.files}

    def winning_names(self) -> set[str]:
        """Every name that an attempt writes whose output a commit may publish."""
        return {name for task in range(self.tasks) for attempt in self.may_win(task) for name in attempt.files}

    def replaces(self, name: str) -> bool:
        """Whether the job may put a file of that name where another stood."""
        if self.config.conflict_mode == "replace" and self.config.superseded_directories:
            return self.config.existing_target == "replace" or name in self.superseded_among({name})
        if self.config.superseded_scope == "partitions" and "/" not in name:
            return self.config.existing_target == "replace"
        return self.config.existing_target == "replace" or self.config.conflict_mode == "replace"

    def superseded_among(self, names: set[str]) -> set[str]:
        """Which of the files that exist there the job takes away."""
        if self.config.conflict_mode != "replace":
            return set()
        old = {name for name in names if not is_hidden(name)}
        written = {name.rpartition("/")[0] for name in self.all_names()}
        if self.config.superseded_directories:
            written = set(self.config.superseded_directories)
        elif self.config.superseded_scope == "destination":
            written.add("")
        elif self.config.superseded_scope == "partitions":
            written.discard("")
        # Names are relative to the destination, or absolute paths outside it.
        here = {name for name in old if "" in written and not name.startswith("/")}
        return here | {name for name in old if any(where and name.startswith(f"{where}/") for where in written)}

    def meets(self, other: Ledger) -> bool:
        """Whether one of two jobs takes away, or replaces, a file that the other one writes."""
        own, others = self.winning_names(), other.winning_names()
        same = "replace" in (self.config.existing_target, other.config.existing_target) and own & others
        return bool(same or self.superseded_among(others) or other.superseded_among(own))

    def in_the_way_among(self, names: set[str]) -> set[str]:
        """Which of them cannot exist beside the new ones: below a file's name, or where a directory goes."""
        targets = self.all_names()
        return {
            old for old in names if any(old.startswith(f"{name}/") or name.startswith(f"{old}/") for name in targets)
        }

    def wrote(self, name: str, data: bytes) -> list[Attempt]:
        """The attempts that wrote this content under this name."""
        return [attempt for attempt in self.attempts if attempt.files.get(name) == data]

    def may_publish(self, name: str, data: bytes) -> bool:
        """Whether a commit may publish this content under this name."""
        return any(attempt in self.may_win(attempt.task) for attempt in self.wrote(name, data))

    def winner(self, task: int, visible: Mapping[str, bytes]) -> Attempt | None:
        """The attempt of a task that may win and all of whose files are visible; None when there is none."""
        for attempt in self.may_win(task):
            if all(visible.get(name) == data for name, data in attempt.files.items()):
                return attempt
        return None

    def is_complete(self, visible: Mapping[str, bytes]) -> bool:
        """Whether the files of some attempt of each task are visible."""
        return all(self.winner(task, visible) is not None for task in range(self.tasks))


def is_hidden(name: str) -> bool:
    """Whether a name at the destination is never data."""
    return name[0] in "_." and "=" not in name.partition("/")[0]
