"""Tests that need a server, Java or processes are left to `.ci/run` and the night; those that share a server stay together."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import groups
from tests.smoke import table

ROOT = Path(__file__).parents[1]


class Item:
    """What the rules look at in a test."""

    def __init__(self, number: int, *fixtures: str, marks: tuple[str, ...] = (), folder: str = "s3") -> None:
        self.number = number
        self.name = f"test_{number}"
        self.nodeid = f"tests/{folder}/test_file.py::test[{number}]"
        self.path = ROOT / "tests" / folder / "test_file.py"
        self.fixturenames = fixtures
        self.callspec: SimpleNamespace | None = None
        self.marks: list[Any] = [getattr(pytest.mark, name) for name in marks]

    def get_closest_marker(self, name: str) -> Any:
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark)

    @property
    def group(self) -> str | None:
        mark = self.get_closest_marker("xdist_group")
        return mark and mark.args[0]


@pytest.fixture(autouse=True)
def nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setenv(groups._VARIABLE, "")
    return monkeypatch


def is_dear(item: Item) -> bool:
    return item.get_closest_marker("dear") is not None


def test_tests_with_servers_java_spark_and_processes_and_benchmarks_are_dear() -> None:
    items = [Item(1, "moto_server"), Item(2, "spark"), Item(3, marks=("java",)), Item(4, folder="processes")]
    items += [Item(5, folder="benchmarks"), Item(6, folder="stores")]
    items[-1].add_marker(pytest.mark.xdist_group("processes"))
    groups.mark_dear([*items, cheap := Item(7)])
    assert all(map(is_dear, items))
    assert not is_dear(cheap)


def test_a_test_that_takes_a_server_by_a_parameter_is_dear() -> None:
    items = [Item(1), Item(2), Item(3)]
    for item, value in zip(items, ("moto", "seaweedfs_server", "s3"), strict=True):
        item.callspec = SimpleNamespace(params={"where": value, "number": 1})
    groups.mark_dear(items)
    assert [is_dear(item) for item in items] == [True, True, False]


def test_a_run_that_names_tests_leaves_none_out(nothing_is_named: pytest.MonkeyPatch) -> None:
    nothing_is_named.setenv(groups._VARIABLE, "1")
    groups.mark_dear([item := Item(1, "moto_server")])
    assert not is_dear(item)


def test_smoke_tests_are_marked_by_their_name_or_case(nothing_is_named: pytest.MonkeyPatch) -> None:
    nothing_is_named.setattr(
        groups, "SMOKE", {"tests/s3/test_file.py::test[1]": "", "tests/s3/test_other.py::test": ""}
    )
    items = [Item(number, "moto_server") for number in (1, 11)]
    items += [Item(2, "moto_server"), Item(3, "moto_server")]
    items[2].nodeid, items[3].nodeid = "tests/s3/test_other.py::test[a-b]", "tests/s3/test_other.py::test_more"
    groups.mark_dear(items)
    assert [item.get_closest_marker("smoke") is not None for item in items] == [True, False, True, False]


def test_a_server_is_a_group() -> None:
    items = [
        Item(1, "moto_server"),
        Item(2, "jvm", "seaweedfs_server"),
        Item(3, "jvm", folder="interop"),
        Item(4, "jvm", folder="emulators"),
        Item(5, "spark"),
        Item(6),
    ]
    own = Item(7, "spark")
    own.add_marker(pytest.mark.xdist_group("cluster"))
    groups.keep_together([*items, own])
    assert [item.group for item in items] == ["moto", "seaweedfs", "java-interop", "java-emulators", "spark", None]
    assert own.group == "cluster"


def test_a_file_of_many_tests_is_a_group() -> None:
    few = [Item(number, folder="few") for number in range(groups.SMALL_TESTS - 1)]
    few += [Item(number, folder="few", marks=("slow",)) for number in range(9)]
    many = [Item(number, folder="many") for number in range(groups.SMALL_TESTS)]
    own = Item(99, "spark", folder="many")
    groups.keep_together([*few, *many, own])
    assert {item.group for item in few} == {None}
    assert {item.group for item in many} == {"tests-many-test_file-py"}
    assert own.group == "spark"


def test_workers_take_the_longest_groups_first_and_single_tests_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def items() -> list[Any]:
        made = [
            Item(1),
            Item(2),
            Item(3, "moto_server"),
            Item(4, marks=("java",)),
            Item(5, "spark"),
            Item(6),
            Item(7, "spark"),
        ]
        made[5].add_marker(pytest.mark.xdist_group("a-file"))
        groups.keep_together(made)
        groups.longest_first(made)
        return [item.number for item in made]

    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    assert items() == [5, 7, 3, 4, 6, 1, 2]
    monkeypatch.delenv("PYTEST_XDIST_WORKER")
    assert items() == [1, 2, 3, 4, 5, 6, 7]


def test_a_file_that_is_named_is_whole() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", "tests/s3/test_s3.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "deselected" not in done.stdout


def test_a_smoke_test_that_does_not_exist_is_an_error(nothing_is_named: pytest.MonkeyPatch) -> None:
    nothing_is_named.setattr(groups, "SMOKE", {"tests/s3/test_file.py::gone": "", "tests/other.py::test": ""})
    with pytest.raises(pytest.UsageError, match="gone") as caught:
        groups.mark_dear([Item(1, "moto_server")])
    assert "other" not in str(caught.value)


def test_the_page_lists_the_smoke_tests() -> None:
    """`python -m tests.smoke` prints the table."""
    assert table() in (ROOT / "docs" / "how-it-is-tested.md").read_text(encoding="utf-8")
