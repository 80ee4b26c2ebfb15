"""Scenarios: which jobs, drivers, recoverers and operators meet."""

from __future__ import annotations

from tests.protocol_model.checks import Scenario
from tests.protocol_model.processes import Job

APPEND = Job("J", "S1")
REPLACE = Job("J", "S1", replaces=("",))
TWO_FILES = Job("J", "S1", ("p1/", "p2/"))


def _commit(nonce: str, driver: str) -> tuple[str, tuple[str, str, int]]:
    return "commit", (nonce, driver, 1)


def _pair(name: str, one: Job, other: Job, *drivers: str, old: tuple[str, ...] = ("p1/old",)) -> Scenario:
    """Builds a driver for each of two jobs, and more for the first."""
    more = tuple(_commit(one.nonce, driver) for driver in drivers)
    return Scenario(name, (one, other), (_commit("S1", "a1"), _commit("S2", "b1"), *more), ("S1", "S2"), old)


_ALL = (
    Scenario("two set-ups", (APPEND, Job("J", "S2")), (("driver", ("S1", "a1")), ("driver", ("S2", "b1")))),
    Scenario(
        "three set-ups", tuple(Job("J", nonce) for nonce in ("S1", "S2", "S3")),
        tuple(("driver", (nonce, "")) for nonce in ("S1", "S2", "S3")),
    ),
    Scenario("set-up and abort", (APPEND,), (("driver", ("S1", "a1")), ("operator", ("J", "abort"))), (), ("p1/old",)),
    Scenario(
        "set-up and rollback", (REPLACE,), (("driver", ("S1", "a1")), ("operator", ("J", "rollback"))), (), ("p1/old",),
    ),
    Scenario("two drivers", (APPEND,), (_commit("S1", "a1"), _commit("S1", "a2")), ("S1",), ("p1/old",)),
    Scenario("two drivers of a replace", (REPLACE,), (_commit("S1", "a1"), _commit("S1", "a2")), ("S1",), ("p1/old",)),
    Scenario("two drivers, two files", (TWO_FILES,), (_commit("S1", "a1"), _commit("S1", "a2")), ("S1",), ("p1/old",)),
    Scenario(
        "listing, two drivers", (Job("J", "S1", ("p1/", "p2/"), listing=True),),
        (_commit("S1", "a1"), _commit("S1", "a2"), ("task_again", ("S1",))), ("S1",), (),
    ),
    Scenario("abort", (APPEND,), (_commit("S1", "a1"), ("operator", ("J", "abort"))), ("S1",), ("p1/old",)),
    Scenario("recover", (APPEND,), (_commit("S1", "a1"), ("operator", ("J", "recover"))), ("S1",), ("p1/old",)),
    Scenario("rollback", (REPLACE,), (_commit("S1", "a1"), ("operator", ("J", "rollback"))), ("S1",), ("p1/old",)),
    Scenario(
        "rollback, two files", (Job("J", "S1", ("p1/", "p2/"), ("p1/",)),),
        (_commit("S1", "a1"), ("operator", ("J", "rollback"))), ("S1",), ("p1/old", "p2/old"),
    ),
    Scenario(
        "rollback, same name", (REPLACE,), (_commit("S1", "a1"), ("operator", ("J", "rollback"))), ("S1",), ("p1/J",),
    ),
    Scenario(
        "two rollbacks, same name", (REPLACE,),
        (_commit("S1", "a1"), ("operator", ("J", "rollback")), ("operator", ("J", "rollback"))), ("S1",), ("p1/J",),
    ),
    Scenario(
        "set-up, second driver and abort", (APPEND,),
        (("driver", ("S1", "")), ("attach", ("S1", "a2")), ("operator", ("J", "abort"))), (), ("p1/old",),
    ),
    Scenario(
        "two operators", (APPEND,), (("operator", ("J", "rollback")), ("operator", ("J", "recover")), _commit("S1", "a1")),
        ("S1",), ("p1/old",),
    ),
    Scenario(
        "kept", (Job("J", "S1", kept=True), Job("J", "S2", kept=True)), (_commit("S1", "a1"), ("driver", ("S2", "b1"))),
        ("S1",),
    ),
    Scenario(
        "kept and rollback", (Job("J", "S1", kept=True),), (_commit("S1", "a1"), ("operator", ("J", "rollback"))),
        ("S1",), ("p1/old",),
    ),
    Scenario(
        "kept from set-up", (Job("J", "S1", kept=True), Job("J", "S2", kept=True)),
        (("driver", ("S1", "a1")), ("driver", ("S2", "b1"))),
    ),
    _pair("kept and replace", Job("J", "S1", kept=True), Job("K", "S2", replaces=("",)), "a2"),
    _pair("left and replace", Job("J", "S1", stays=True), Job("K", "S2", replaces=("",)), "a2"),
    Scenario("kept, two drivers", (Job("J", "S1", kept=True),), (_commit("S1", "a1"), _commit("S1", "a2")), ("S1",)),
    _pair("append and append", APPEND, Job("K", "S2")),
    _pair("replace and append", REPLACE, Job("K", "S2")),
    _pair("replace and replace", REPLACE, Job("K", "S2", replaces=("",))),
    _pair(
        "two partitions", Job("J", "S1", replaces=("p1/",)), Job("K", "S2", ("p2/",), ("p2/",)), old=("p1/old", "p2/old")
    ),
    _pair("one partition and all", Job("J", "S1", replaces=("p1/",)), Job("K", "S2", ("p2/",), ("",)), old=("p1/old", "p2/old")),
    _pair("busy, two tries", Job("J", "S1", replaces=("",), tries=2), Job("K", "S2", tries=2)),
    _pair("two drivers and a replace", APPEND, Job("K", "S2", replaces=("",)), "a2"),
    _pair("two drivers and an append", APPEND, Job("K", "S2"), "a2"),
    Scenario(
        "recoverer and a replace", (APPEND, Job("K", "S2", replaces=("",))),
        (_commit("S1", "a1"), ("operator", ("J", "recover")), _commit("S2", "b1")), ("S1", "S2"), ("p1/old",),
    ),
    Scenario(
        "two last steps and a replace", (APPEND, Job("K", "S2", replaces=("",))),
        (_commit("S1", "a1"), _commit("S1", "a2"), _commit("S2", "b1")), ("S1", "S2"), (), ("S1",),
    ),
    Scenario(
        "abort, then the id again", (APPEND, Job("J", "S2", replaces=("",))),
        (_commit("S1", "a1"), ("ended_then", ("J", "abort", "S2", "b1"))), ("S1",),
    ),
    Scenario(
        "rollback, then the id again", (REPLACE, Job("J", "S2", replaces=("",))),
        (_commit("S1", "a1"), ("ended_then", ("J", "rollback", "S2", "b1"))), ("S1",), ("p1/old",),
    ),
    Scenario(
        "recover, then the id again", (APPEND, Job("J", "S2")),
        (_commit("S1", "a1"), ("ended_then", ("J", "recover", "S2", "b1"))), ("S1",), ("p1/old",),
    ),
    Scenario(
        "the id again during an abort", (APPEND, Job("J", "S2", replaces=("",))),
        (_commit("S1", "a1"), ("operator", ("J", "abort")), ("driver", ("S2", "b1"))), ("S1",),
    ),
    Scenario(
        "the id again during a rollback", (APPEND, Job("J", "S2", replaces=("",))),
        (_commit("S1", "a1"), ("operator", ("J", "rollback")), ("driver", ("S2", "b1"))), ("S1",),
    ),
)  # fmt: skip

SCENARIOS = {scenario.name: scenario for scenario in _ALL}
