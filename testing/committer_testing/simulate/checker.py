"""The one checker of the guarantees: what a destination may hold, at every step of its jobs and when they are over.

It looks through a channel that the engine has no part in. What must exist there is a model that changes in one way:
when a job's outcome is seen, its winners' files are added and what it superseded is taken out, as if all jobs had run
one after the other in the order of their outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from committer.layout import SUCCESS
from committer_testing.simulate.contents import VISIBLE, Files, difference, digests, is_entry, is_temporary
from committer_testing.simulate.ledger import Ledger
from committer_testing.simulate.markers import is_same_marker, may_be_incomplete, wrong_at_the_end
from committer_testing.simulate.watch import JobWatch, speaker_of
from committer_testing.simulate.worlds import OUT, TEMPORARY, World, is_of_application_attempt

Fate: TypeAlias = Literal["committed", "untouched", "unknown"]


class GuaranteeBrokenError(AssertionError):
    """A destination holds what it must not, or lacks what it must hold."""


class Checker:
    """Holds the jobs of a destination to their guarantees.

    Made before any of them is set up, so that it sees what existed there.

    Args:
        world: The channel.
        ledgers: What tasks did, by job id.
        report: What to do about a broken guarantee; raises by default.

    Attributes:
        late: Whether a request of a driver may have come after another driver rolled the job back: it can make an
            empty directory again, which no process reads and no driver is left to remove.
        must_stand: What a reader must find but for what a running commit changes, by name.
        steps: How often something visible had changed.
    """

    def __init__(
        self, world: World, ledgers: Mapping[str, Ledger], report: Callable[[GuaranteeBrokenError], None] | None = None
    ) -> None:
        self.world = world
        self.late: bool = False
        self.steps: int = 0
        self.jobs: dict[str, JobWatch] = {job_id: JobWatch(job_id, ledger, world) for job_id, ledger in ledgers.items()}
        self.must_stand: dict[str, bytes] = dict(world.visible())
        self._marker = self._old_marker = self.must_stand.get(SUCCESS)
        self._strangers: dict[str, bytes] = {}
        self._before_directories = {name for name in world.directories() if name.startswith(VISIBLE)}
        self._around = {
            name: data for name, data in world.files().items() if not name.startswith(VISIBLE) or is_temporary(name)
        }
        self._pending_before = world.pending()
        self._report = report
        self._last: Mapping[str, bytes] | None = None

    def adopt(self, name: str, data: bytes) -> None:
        """Another user puts a file at the destination, which must stay as he left it."""
        self.world.write(self.world.name_of(name), data)
        self.must_stand[name] = data
        self._strangers[name] = data
        for watch in self.jobs.values():
            watch.superseded.discard(name)
            watch.leaving.discard(name)
            watch.may_leave.discard(name)

    def make_way(self, name: str) -> bool:
        """Removes another user's file, as an error told an operator to do; False when none exists there."""
        data = self.world.read(self.world.name_of(name))
        if data is None or data != self._strangers.get(name) or data != self.must_stand.get(name):
            return False
        self.world.remove(self.world.name_of(name))
        del self.must_stand[name], self._strangers[name]
        return True

    def take_what_is_kept(self, job_id: str) -> bool:
        """An operator takes away what a rolled back job keeps because it cannot come back, as its error tells him to.

        That is an old file that was in the way, once others put files below its name, where a directory was meanwhile:
        no store with real directories can hold both. Nothing else may be kept, and it must not be lost.

        Returns:
            Whether there was such a file, and the job still had it.
        """
        watch, visible = self.jobs[job_id], self.world.visible()
        if watch.outcome != "rolled-back" or not self.world.store().capabilities.directories:
            return False
        taken = False
        for name in sorted(watch.blocking & self.must_stand.keys() - visible.keys()):
            if not any(other.startswith(f"{name}/") for other in self._strangers.keys() & visible.keys()):
                continue
            for place, data in self.world.files().items():
                if place.startswith(watch.places) and data == self.must_stand[name]:
                    self.world.remove(place)
                    del self.must_stand[name]
                    taken = True
                    break
        return taken

    # -- at every step --------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Checks what must hold at every moment."""
        visible = self.world.visible()
        for watch in self.jobs.values():
            self._look_at(watch, visible)
        if visible is self._last or visible == self._last:
            return
        self._last = visible
        self.steps += 1
        self._check_around()
        self._check_marker(visible)
        for name, data in visible.items():
            if name != SUCCESS and self.must_stand.get(name) != data:
                self._check_new(name, data, visible)
        for name in self.must_stand.keys() - visible.keys():
            self._check_gone(name, visible)

    def _look_at(self, watch: JobWatch, visible: Mapping[str, bytes]) -> None:
        """Notes a decision, or an end, that exists there for the first time."""
        problem = watch.look()
        if problem is not None:
            self._fail(problem, visible)
        open_setups = watch.open_setups() if watch.ledger.shared_id else []
        # A setup record that comes a second time can make a dead directory look open (docs/guarantees.md, the third
        # exception for `_SUCCESS`).
        if len(open_setups) > 1 and not any(one.set_up_late for one in self.jobs.values()):
            self._fail(f"G11: the id of {watch.job_id} is open twice: {open_setups}", visible)
        if watch.just_decided:
            watch.superseded = watch.ledger.superseded_among({*self.must_stand})
            watch.blocking = watch.ledger.in_the_way_among({*self.must_stand})
            watch.targets = watch.ledger.winning_names() & visible.keys()
            self._check_alone(watch)
        if watch.just_committed:
            self._commit(watch, visible)
        if watch.finished:
            watch.may_leave.clear()

    def _check_alone(self, watch: JobWatch) -> None:
        for other in self.jobs.values():
            if other is watch or not other.running:
                continue
            if watch.ledger.meets(other.ledger):
                self._fail(f"G11: {watch.job_id} and {other.job_id} commit at once, and one replaces the other's", {})
        for other in self.jobs.values():
            waits = watch.replacing and other is not watch and other.unfinished and not other.running
            if waits and watch.ledger.meets(other.ledger):
                self._fail(f"G9: {watch.job_id} replaces, and {other.job_id} has yet to finish", {})

    def _commit(self, watch: JobWatch, visible: Mapping[str, bytes]) -> None:
        """A job is committed from here on: its files are what must stand."""
        new: dict[str, bytes] = {}
        winners: dict[int, int] = {}
        for task in range(watch.ledger.tasks):
            winner = watch.ledger.winner(task, visible)
            if winner is None:
                self._fail(f"G1: {watch.job_id} is committed and not all files of task {task} are in place", visible)
            else:
                new.update(winner.files)
                winners[task] = winner.attempt
        if len(winners) == watch.ledger.tasks and not watch.ledger.is_one_choice(winners):
            self._fail(f"G2: {watch.job_id} is committed with winners of two drivers: {winners}", visible)
        for name in (watch.superseded | watch.blocking) - new.keys():
            if name not in visible or name in self._strangers:
                if visible.get(name) != self.must_stand.get(name):
                    self.must_stand.pop(name, None)
                elif not watch.removes_before_outcome:
                    # It came before the decision, but perhaps after the job looked what it takes away.
                    watch.may_leave.add(name)
            elif watch.removes_before_outcome and name in watch.superseded:
                self._fail(f"G1, G13: {watch.job_id} is committed and {name}, which it replaces, still exists", visible)
            elif not watch.removes_before_outcome:
                watch.leaving.add(name)
        self.must_stand.update(new)
        for other in self.jobs.values():
            other.superseded -= new.keys()
            other.leaving -= new.keys()
            other.may_leave -= new.keys()

    def _check_around(self) -> None:
        for name, data in self._around.items():
            if self.world.read(name) != data:
                self._fail(f"G10, G11: {name} belongs to another user and changed", {})

    def _check_marker(self, visible: Files) -> None:
        """Checks a `_SUCCESS` that appeared: it names a job that committed and whose files are all in place."""
        data = visible.get(SUCCESS)
        if data == self._marker:
            return
        self._marker = data
        if data is None or is_same_marker(data, self._old_marker):
            return
        watch = speaker_of(data, self.jobs.values())
        if watch is None:
            self._fail("G9: a _SUCCESS appeared that no job of the simulation wrote", visible)
        elif not watch.committed:
            self._fail(f"G9: _SUCCESS of {watch.job_id} stands before its outcome", visible)
        elif watch.leaving & visible.keys():
            self._fail(f"G13: _SUCCESS of {watch.job_id} stands, and so does what it replaces", visible)
        elif not watch.ledger.is_complete(visible) and not may_be_incomplete(watch, self.jobs.values()):
            self._fail(f"G9: _SUCCESS of {watch.job_id} stands and a file of a committed task does not", visible)

    def _check_new(self, name: str, data: bytes, visible: Files) -> None:
        watch = next((one for one in self.jobs.values() if one.ledger.may_publish(name, data)), None)
        if watch is None:
            begun = [one for one in self.jobs.values() if one.decided or any(one.ledger.wrote(name, data))]
            if not any(one.decided for one in begun):
                self._fail(f"G6: {name} appeared at the destination before its job was decided", visible)
            else:
                self._fail(f"G2: {name} is of no attempt that may win", visible)
        elif not watch.decided:
            self._fail(f"G6: {name} appeared at the destination before {watch.job_id} was decided", visible)
        elif name in self.must_stand and not watch.ledger.replaces(name):
            self._fail(f"G14: {name} existed there and was overwritten", visible)

    def _check_gone(self, name: str, visible: Files) -> None:
        deciding = [watch for watch in self.jobs.values() if watch.decided and not watch.committed]
        for watch in self.jobs.values():
            if name in watch.leaving | watch.may_leave:
                watch.leaving.discard(name)
                watch.may_leave.discard(name)
                del self.must_stand[name]
                return
        if name == SUCCESS:
            if not any(watch.decided for watch in self.jobs.values()):
                self._fail("G6: _SUCCESS is gone and no job was decided", visible)
            return
        for watch in deciding:
            if name in watch.blocking:
                return
            if name in watch.superseded and not watch.removes_before_outcome:
                self._fail(f"G13: {name} is gone before the outcome of {watch.job_id}", visible)
                return
            if name in watch.superseded and watch.ledger.is_complete(visible):
                return
        if any(name in watch.ledger.all_names() for watch in deciding):
            self._fail(f"G13: {name} is neither the old file nor the new one", visible)
        else:
            self._fail(f"G1, G13: {name} is gone and the new data is not complete", visible)

    # -- what others ask ------------------------------------------------------------------------------------------

    def fate_of(self, job_id: str) -> Fate:
        """How a job ended as far as it was seen: ``committed``, else ``untouched``."""
        return "committed" if self.jobs[job_id].committed else "untouched"

    def is_changed(self) -> bool:
        """Whether anything visible is not what must stand."""
        return self.world.visible() != self.must_stand

    def is_complete(self) -> bool:
        """Whether the output of every job exists at the destination."""
        visible = self.world.visible()
        return all(watch.ledger.is_complete(visible) for watch in self.jobs.values())

    def left_over(self) -> list[str]:
        """What stands of the jobs in `_temporary`, and in Hadoop's directories for uploads that wait."""
        own = tuple(place for watch in self.jobs.values() for place in watch.places)
        return sorted(name for name in (*self.world.files(), *self.world.directories()) if f"{name}/".startswith(own))

    # -- at the end -----------------------------------------------------------------------------------------------

    def end(self, fate: Fate, *, left_over: bool = False, neat: bool = False) -> None:
        """Checks the end of the only job.

        Args:
            fate: ``committed``: all of it and nothing else. ``untouched``: as before the job. ``unknown``: an
                operator must look, and nothing is lost and nothing too much.
            left_over: Whether the job's own directory may still stand.
            neat: Whether `_temporary` itself must be gone, as after a job that nothing disturbed.
        """
        self.step()
        if fate == "unknown":
            self.check_nothing_lost()
            return
        (job_id,) = self.jobs
        if fate != self.fate_of(job_id):
            self._fail(f"the job ended {self.fate_of(job_id)}, and is said to be {fate}", self.world.visible())
        self.settle(left_over=left_over, neat=neat)

    def settle(self, *, left_over: bool = False, neat: bool = False) -> None:
        """Checks a destination whose jobs are all over: nothing too much, nothing too little.

        Args:
            left_over: Whether jobs' own directories may still stand.
            neat: Whether `_temporary` itself must be gone.
        """
        self.step()
        self._check_around()
        leaving = {name for watch in self.jobs.values() for name in watch.leaving}
        files, found = self.world.files(), dict(self.world.visible())
        expected = {name: data for name, data in self.must_stand.items() if name not in leaving}
        marker, old_marker = found.pop(SUCCESS, None), expected.pop(SUCCESS, None)
        if digests(found) != digests(expected):
            self._fail(f"G1, G2, G4: the jobs are over, and yet {difference(found, expected)}", found)
        wrong = wrong_at_the_end(marker, old_marker, self.jobs, found)
        can = self.world.store().capabilities
        # A driver moves or deletes a marker by its name there (docs/guarantees.md, "Exceptions for `_SUCCESS`").
        by_name = can.deletes_by_name or not (can.identity or can.refuses_late_writes)
        if wrong and not (marker is None and by_name):
            self._fail(wrong, found)
        pending = self.world.pending()
        gone = sorted(self._pending_before - pending)
        if gone:
            self._fail(f"uploads: {gone} were another user's and are gone", files)
        for name in files:
            if name not in self._around and not self._may_be_here(name):
                self._fail(f"G10: {name} appeared outside the destination and the jobs' own directories", files)
        if not self.late:
            self._check_directories(found)
        if left_over:
            return
        left = sorted(pending - self._pending_before)
        # A task takes the job for alive by the setup record (docs/guarantees.md, "Uploads of late tasks on S3").
        if left and not any(watch.set_up_late for watch in self.jobs.values()):
            self._fail(f"uploads: the jobs are over and left pending {left[:5]}", files)
        standing = self.left_over()
        standing += [name for name in files if is_entry(name) and not self._may_stay(name)]
        if neat and not any(map(is_temporary, self._around)) and f"{OUT}/{TEMPORARY}" in self.world.directories():
            standing.append(f"{OUT}/{TEMPORARY}")
        if standing:
            self._fail(f"G4: the jobs are over and left {standing[:5]}", files)

    def _may_stay(self, entry: str) -> bool:
        """Whether an entry was there before, or is of an earlier run of an id whose directory is gone."""
        job = entry.rpartition("/")[2].rpartition("~")[0]
        runs = [watch for watch in self.jobs.values() if watch.shared_id == job.partition("~")[0]]
        return entry in self._around or (len(runs) > 1 and not any(f"/{job}/" in name for name in self.left_over()))

    def _may_be_here(self, name: str) -> bool:
        if not name.startswith(VISIBLE):
            return False
        if not is_temporary(name) or is_entry(name):
            return True
        jobs = self.jobs.items()
        return any(name.startswith(job.places) or is_of_application_attempt(name, job_id) for job_id, job in jobs)

    def check_kept(self, job_id: str) -> None:
        """Checks that a committed job that keeps its outcome left that, whole, and nothing else."""
        watch = self.jobs[job_id]
        if watch.committed and watch.ledger.config.outcome_kept and not watch.is_kept():
            self._fail(f"kept outcomes: {job_id} committed and left other than its outcome: {self.left_over()}", {})

    def check_nothing_lost(self) -> None:
        """Checks what must hold where no driver can tell how far a job came: its files and the old ones still exist."""
        files = self.world.files()
        everything = set(files.values())
        new: dict[str, set[bytes]] = {}
        for watch in self.jobs.values():
            if not watch.decided or watch.outcome == "rolled-back":
                continue
            for task in range(watch.ledger.tasks):
                able = watch.ledger.may_win(task)
                kept = (watch.kept_of(one, self.jobs.values()) for one in able)
                # What a job committed must stand, below, unless a later one replaced it.
                if not watch.committed and not any(some <= everything for some in kept):
                    self._fail(f"G8: files of task {task} of {watch.job_id} are lost", files)
                for name, data in (file for attempt in able for file in attempt.files.items()):
                    new.setdefault(name, set()).add(data)
        removed = {name for watch in self.jobs.values() for name in self._removed_with_directories(watch)}
        for name in self.must_stand.keys() - removed - {SUCCESS}:
            data = self.must_stand[name]
            if data not in everything and files.get(self.world.name_of(name)) not in new.get(name, ()):
                self._fail(f"G8: {name} is lost", files)

    def _removed_with_directories(self, watch: JobWatch) -> set[str]:
        """What a job may remove for good: directories at files' targets that cannot be moved, the exception to G13."""
        if not (watch.decided and watch.ledger.config.existing_target == "replace"):
            return set()
        if self.world.store().capabilities.atomic_directory_rename:
            return set()
        targets = watch.ledger.winning_names()
        return {
            old
            for old in watch.blocking - self._strangers.keys()
            if any(old.startswith(f"{name}/") for name in targets)
        }

    def _check_directories(self, visible: Files) -> None:
        if not self.world.store().capabilities.directories:
            return
        found = {name for name in self.world.directories() if name.startswith(VISIBLE) and not is_temporary(f"{name}/")}
        needed: set[str] = set()
        for name in visible:
            parts = self.world.name_of(name).split("/")[:-1]
            needed.update("/".join(parts[:depth]) for depth in range(2, len(parts) + 1))
        extra = found - needed - self._before_directories
        replaced = any(watch.decided and (watch.superseded or watch.blocking) for watch in self.jobs.values())
        missing = set() if replaced else self._before_directories - found
        missing = {name for name in missing if not is_temporary(f"{name}/")}
        if extra or missing:
            self._fail(f"G4: directories too many {sorted(extra)}, too few {sorted(missing)}", visible)

    def _fail(self, what: str, files: Files) -> None:
        error = GuaranteeBrokenError(f"{what}\nstanding: {sorted(files)}")
        if self._report is None:
            raise error
        self._report(error)
