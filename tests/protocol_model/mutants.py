"""Planted faults: each breaks one rule of the protocol, and the search must find it.

A row says what is broken, and where it is found first: kind of store, scenario, faults. Traps that drafts of the protocol
fell into are rows like the others.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.protocol_model.scenarios import SCENARIOS
from tests.protocol_model.search import Result, Search
from tests.protocol_model.stores import Kind


class Mutant(NamedTuple):
    """A rule that is broken, and a search that finds it."""

    broken: str
    kind: str
    scenario: str
    faults: int = 0


MUTANTS = {
    # set-up
    "list-first": Mutant("a set-up lists before it makes its directory", "adls", "two set-ups"),
    "no-list": Mutant("a set-up does not look for other jobs of its id", "directories", "two set-ups"),
    "no-close": Mutant("a set-up passes over a directory that is not opened yet", "adls", "two set-ups"),
    "mark-repeated": Mutant("the first name is sent again after a lost answer", "objects", "set-up and abort", 1),
    "parents": Mutant("directories are made with their parents", "directories", "set-up, second driver and abort", 1),
    "made-in-place": Mutant(
        "directories are made in place, not renamed into it", "directories", "set-up and rollback", 1
    ),
    # entries
    "entry-late": Mutant("the entry is created after the listing of the others'", "directories", "replace and append"),
    "entry-early": Mutant("entries are deleted before the directory", "directories", "replace and append"),
    "shared-entry": Mutant("drivers of one job share an entry", "directories", "two drivers and a replace"),
    "setup-alone-counts": Mutant(
        "an entry counts no longer than `setup`, where `work` stays", "directories", "kept and replace"
    ),
    "no-fence-of-work": Mutant("a directory that stays keeps its `work`", "directories", "left and replace"),
    "entry-reused": Mutant("a second try uses the name of the first", "objects", "busy, two tries", 1),
    "entry-rewritten": Mutant("an entry is written again with a wider scope", "objects", "replace and append", 1),
    "narrow-scope": Mutant("the scope leaves out what is replaced", "directories", "replace and append"),
    "withdraw-unknown": Mutant(
        "the entry is withdrawn while a create of the decision may take effect", "objects", "replace and append", 1
    ),
    "old-files-early": Mutant("old files are listed before the entries", "directories", "replace and append"),
    # decision
    "plain-decision": Mutant("the decision replaces another", "directories", "abort"),
    "no-look": Mutant("no look at `setup` after a decision or outcome", "objects", "abort"),
    "no-kept-look": Mutant("none in directories of jobs that keep their outcome", "directories", "kept and rollback"),
    "decision-is-proof": Mutant("the decision counts as a proof that the job exists", "objects", "abort"),
    "freeze": Mutant("a driver freezes listed records by renaming them", "directories", "listing, two drivers"),
    # publishing and `_SUCCESS`
    "no-bar": Mutant("no file bars a second move of `_SUCCESS`", "directories", "two drivers and an append"),
    "no-source-identity": Mutant("publishing does not state its source's identity", "adls", "set-up and rollback", 1),
    "no-look-2": Mutant("no look at `setup` before `_SUCCESS`", "adls", "rollback"),
    "no-etag": Mutant(
        "the rename to `_SUCCESS` does not state the etag of its source", "adls", "two last steps and a replace", 1
    ),
    "plain-marker": Mutant("`_SUCCESS` is put without a condition", "objects", "two last steps and a replace"),
    # the way back
    "no-fence": Mutant("a rollback does not fence other drivers", "directories", "rollback"),
    "undone-each": Mutant("each driver that undoes has names of its own", "directories", "two rollbacks, same name"),
    "same-marker": Mutant("the marker comes back with the same etag", "objects", "rollback"),
    "give-back-absent": Mutant("the marker comes back only where there is none", "objects", "rollback"),
    "undo-replaced": Mutant("a file that was replaced in place is undone", "objects", "rollback, same name"),
    # removal and look-up
    "last-first": Mutant("the last word is deleted first", "objects", "abort"),
    "delete-unconfirmed": Mutant("a removal goes on after a lost answer", "objects", "abort", 1),
    "setup-first": Mutant("`setup` is read before the other records", "directories", "kept and rollback"),
    "read-once": Mutant("records are not read again where `setup` vanished", "objects", "kept and rollback"),
    "kept-elsewhere": Mutant("a kept outcome lies outside the directory", "objects", "kept"),
    "outcome-is-kept": Mutant("`opened` and `outcome` alone are a kept outcome", "objects", "kept"),
    "kept-without-opened": Mutant("a kept outcome leaves no `opened`", "adls", "kept from set-up"),
}


def hunt(name: str, limit: int = 2_000_000, *, trace: bool = False) -> Result:
    """Searches where a planted fault is found, until it is."""
    mutant = MUTANTS[name]
    scenario = SCENARIOS[mutant.scenario]
    world = scenario.world(Kind(mutant.kind), frozenset({name}))
    return Search(world, scenario, mutant.faults).run(limit, trace=trace, first=True)
