"""Whether what exists at a destination, and what drivers said of it, is as it must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.disk_sweep import life
from tests.disk_sweep.account import Fate, Tree, Wrong, fate, left, look, tell
from tests.disk_sweep.victims import VICTIMS

if TYPE_CHECKING:
    from tests.disk_sweep.runs import Case


class Told(NamedTuple):
    """What a process said of its end: nothing when it died."""

    kind: str = "died"
    outcome: str = ""
    text: str = ""


class Verdict:
    """Judges one run, by a walk of the table and the job's records as they lie there.

    Args:
        case: The run.
        table: Where.
        before: What existed there before the job.
        stood: What existed there when the victim began: files, marker, and how far the job was.
    """

    def __init__(self, case: Case, table: str, before: Tree, stood: tuple[Tree, str, Fate]) -> None:
        self._case = case
        self._table = table
        self._before = before
        self._after = life.add_job(before, case.flavour)
        self._stood = stood
        self._verb = VICTIMS[case.victim].verb

    def says_committed(self, told: Told) -> bool:
        """Whether the victim said that the job is committed."""
        return told.outcome == "committed" or (told.kind == "done" and self._verb in {"commit", "recover"})

    def check_between(self) -> None:
        """At any moment: nothing torn, nothing of a neighbour's lost."""
        tree, marker = look(self._table)
        replaced = self._case.detail == "replace"
        new = {**self._after, "p=1/r": "r"}
        for name, text in tree.items():
            if text not in (self._before.get(name), new.get(name)):
                raise Wrong(f"{name} holds {text!r}")
        for name in self._before.keys() & self._after.keys():
            if name not in tree and not (replaced and name.startswith("p=1/")):
                raise Wrong(f"{name} is lost")
        if marker == life.JOB and not replaced and tree != self._after:
            raise Wrong(f"_SUCCESS of the job, but {tell(tree, self._after)}")

    def check_told(self, told: Told, *, alone: bool) -> None:
        """What a driver says of the outcome is true of what is on the disk.

        Args:
            told: What it said.
            alone: Whether no other process did anything meanwhile.
        """
        if told.kind == "died":
            return
        now = fate(self._table, life.JOB)
        if told.outcome == "unchanged" and now.decision == "commit" and now.outcome != "rolled-back":
            # Also where another driver decided it: a user who reads this would run the job again.
            if self._stood[2].decision != "commit" or now.outcome != self._stood[2].outcome:
                raise Wrong("told unchanged, but the job is decided to be committed")
        if not alone:
            return
        tree, marker = look(self._table)
        if self.says_committed(told):
            if tree != self._after:
                raise Wrong(f"told committed: {tell(tree, self._after)}")
            if told.kind == "done" and marker != life.JOB:
                raise Wrong(f"told committed, but _SUCCESS names {marker!r}")
        elif told.kind == "done" and (tree, marker) != (self._before, "old"):
            raise Wrong(f"{self._verb} is done: {tell(tree, self._before)}, _SUCCESS names {marker!r}")
        if told.outcome == "unchanged":
            self._check_unchanged(tree, marker, now)
        if told.outcome == "partial" and not now.stands and not left(self._table):
            raise Wrong("told partial, but nothing is left to recover")

    def _check_unchanged(self, tree: Tree, marker: str, now: Fate) -> None:
        stood, old_marker, then = self._stood
        if now.outcome == "rolled-back" or not now.stands:
            # A commit that was refused took all of it back.
            stood, old_marker = self._before, "old"
        if tree != stood or marker != old_marker:
            raise Wrong(f"told unchanged: {tell(tree, stood)}, _SUCCESS names {marker!r}")
        if now.intent and not then.intent and not now.decision:
            raise Wrong("told unchanged, but an intent stands: a recovery would commit the job")
        if (then.decision, then.outcome) == ("commit", "") and now.decision != "commit":
            raise Wrong(f"told unchanged, but the decision is {now.decision or 'gone'}")

    def check_end(self, told: Told, other: Told) -> None:
        """Once the job is ended: exactly all of it, or nothing."""
        tree, marker = look(self._table)
        alone: list[tuple[Tree, str]] = [(self._after, life.JOB)]
        both = [
            (life.add_neighbour(self._after), life.NEIGHBOUR),
            (life.add_job(life.add_neighbour(self._before), self._case.flavour), life.JOB),
        ]
        if not self.says_committed(told):
            alone.append((self._before, "old"))
            both.append((life.add_neighbour(self._before), life.NEIGHBOUR))
        ends = alone
        if self._case.detail == "replace" and other.outcome != "unchanged":
            ends = both if other.kind == "done" else [*alone, *both]
        if (tree, marker) not in ends:
            said = "; or ".join(f"{tell(tree, wanted)}, _SUCCESS of {name}" for wanted, name in ends)
            raise Wrong(f"in the end, _SUCCESS of {marker!r}: {said}")

    def check_forced(self, told: Told) -> None:
        """A cleanup by force may leave a part of what a living driver published, but no report may call that whole."""
        tree, marker = look(self._table)
        if tree.get("other/neighbour") != "neighbour":
            raise Wrong("the neighbour's file is lost")
        whole = tree == self._after
        if marker == life.JOB and not whole:
            raise Wrong(f"_SUCCESS of the job, but {tell(tree, self._after)}")
        if self.says_committed(told) and not whole:
            raise Wrong(f"told committed, but {tell(tree, self._after)}")
        if told.outcome == "unchanged" and tree not in (self._before, self._stood[0]):
            raise Wrong(f"told unchanged, but {tell(tree, self._stood[0])}")

    def check_again(self, earlier: Tree) -> None:
        """A job of the same id ran after one that did not commit."""
        tree, marker = look(self._table)
        wanted = life.add_job(earlier, self._case.flavour)
        if (tree, marker) != (wanted, life.JOB):
            raise Wrong(f"run again: {tell(tree, wanted)}, _SUCCESS of {marker!r}")
