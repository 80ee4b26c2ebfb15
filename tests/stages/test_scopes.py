"""Which scopes meet, and what the scope of a job is by its choices."""

from __future__ import annotations

import pytest

from committer.options.config import CommitterConfig
from committer.stages.decide.entries import EVERYTHING, Scope, coarsened, scope_of
from committer.stages.names import NameFolding
from committer.stores.base import Capabilities

JAN, FEB = "day=01", "day=02"


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        (Scope((JAN,)), Scope((JAN,)), False),
        (Scope(("",)), Scope(("",)), False),
        (Scope((JAN,), (JAN,)), Scope((JAN,)), True),
        (Scope((JAN,), (JAN,)), Scope((FEB,)), False),
        (Scope((JAN,), (JAN,)), Scope((FEB,), (FEB,)), False),
        (Scope((JAN,), (JAN,)), Scope((f"{JAN}/hour=1",)), True),
        (Scope((f"{JAN}/hour=1",), (f"{JAN}/hour=1",)), Scope((JAN,)), True),
        (Scope((f"{JAN}/hour=1",), (f"{JAN}/hour=1",)), Scope((f"{JAN}/hour=10",), (f"{JAN}/hour=10",)), False),
        (Scope((JAN,), ("",)), Scope((FEB,)), True),
        (Scope((JAN,), ("",)), Scope(("",)), True),
        (Scope((JAN,), ("",)), Scope(("/root/a",)), False),
        (Scope(("/root/a",), ("/root/a",)), Scope(("/root/a/b",)), True),
        (Scope(("/root/a",), ("/root/a",)), Scope(("root/a",), ("root/a",)), False),
        (Scope((), (JAN,)), Scope((), (JAN,)), True),
        (Scope(("DAY=01",), ("DAY=01",)), Scope((JAN,)), False),
        (EVERYTHING, Scope(("/root/a",)), True),
        (EVERYTHING, Scope((JAN,)), True),
    ],
)
def test_scopes_meet_where_one_replaces_what_the_other_touches(one: Scope, other: Scope, meets: bool) -> None:
    assert one.meets(other, str) is meets
    assert other.meets(one, str) is meets


def test_names_are_compared_as_the_store_compares_them() -> None:
    assert Scope(("DAY=01",), ("DAY=01",)).meets(Scope((JAN,)), str.casefold)


_REPLACE = CommitterConfig(conflict_mode="replace")
_FAIL = CommitterConfig(conflict_mode="fail")


@pytest.mark.parametrize(
    ("config", "written", "scope"),
    [
        (CommitterConfig(), [JAN], Scope((JAN,))),
        (CommitterConfig(), [], Scope(("",))),
        (CommitterConfig(existing_target="replace"), [JAN, "/r/a"], Scope(("/r/a", JAN), ("/r/a", JAN))),
        (_REPLACE, [JAN], Scope((JAN,), (JAN,))),
        (_REPLACE.replace(superseded_scope="partitions"), ["", JAN], Scope(("", JAN), (JAN,))),
        (_REPLACE.replace(superseded_scope="destination"), [JAN, "/r/a"], Scope(("/r/a", JAN), ("", "/r/a"))),
        (_REPLACE.replace(superseded_scope="destination"), [], Scope(("",), ("",))),
        (_REPLACE.replace(superseded_directories=(JAN,)), [f"{JAN}/a"], Scope((f"{JAN}/a",), (JAN, f"{JAN}/a"))),
        (_FAIL, [JAN], Scope((JAN,), (JAN,))),
        (_FAIL.replace(superseded_scope="partitions"), ["", JAN], Scope(("", JAN), (JAN,))),
        (_FAIL.replace(superseded_scope="destination"), [JAN], Scope((JAN,), ("",))),
    ],
)
def test_scope_of_a_job(config: CommitterConfig, written: list[str], scope: Scope) -> None:
    assert scope_of(config, written, NameFolding(Capabilities())) == scope


def test_long_lists_are_coarsened_to_parents() -> None:
    days = [f"a/b={b}/c={c}" for b in range(10) for c in range(20)]
    assert coarsened(days, 200) == sorted(days)
    assert coarsened(days, 199) == [f"a/b={b}" for b in range(10)]
    assert coarsened(days, 9) == ["a"]
    assert coarsened([*days, "b"], 1) == [""]
    assert coarsened(["/r/a", "/r/b", "x"], 1) == ["", "/"]
