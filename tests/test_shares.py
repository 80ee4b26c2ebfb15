"""Of the tests that need a server or Java each run takes some, CI more; what shares a server stays together."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import rotation, shares

ROOT = Path(__file__).parents[1]


class Item:
    """What the rules look at in a test."""

    def __init__(
        self, number: int, *fixtures: str, marks: tuple[str, ...] = (), folder: str = "s3", one_in: int = 0
    ) -> None:
        self.number = number
        self.name = f"test_{number}"
        self.nodeid = f"tests/{folder}/test_file.py::test[{number}]"
        self.path = ROOT / "tests" / folder / "test_file.py"
        self.fixturenames = fixtures
        self.marks = [getattr(pytest.mark, name) for name in marks]
        if one_in:
            self.marks.append(pytest.mark.one_in(one_in))

    def get_closest_marker(self, name: str) -> Any:
        return next((mark for mark in self.marks if mark.name == name), None)

    def iter_markers_with_node(self, name: str) -> Iterator[tuple[Any, Any]]:
        return ((self, mark) for mark in self.marks if mark.name == name)

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark)

    @property
    def left_out(self) -> bool:
        return self.get_closest_marker("full") is not None

    @property
    def is_slow(self) -> bool:
        return self.get_closest_marker("slow") is not None

    @property
    def group(self) -> str | None:
        mark = self.get_closest_marker("xdist_group")
        return mark and mark.args[0]


@pytest.fixture(autouse=True)
def nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setenv(shares._VARIABLE, "")
    return monkeypatch


@pytest.mark.parametrize(("server", "one_in"), [("moto_server", shares.DEAR_ONE_IN), ("spark", shares.SPARK_ONE_IN)])
def test_every_test_has_its_turn_in_both_runs(server: str, one_in: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_default: list[int] = []
    in_ci: list[int] = []
    for offset in range(shares.ONE_IN):
        monkeypatch.setenv(rotation.VARIABLE, str(offset))
        items = [Item(number, server) for number in range(80)]
        shares.leave_to_ci(items)
        some = [item.number for item in items if not item.left_out and not item.is_slow]
        assert 1 <= len(some) <= 2
        by_default += some
        in_ci += [item.number for item in items if item.left_out and not item.is_slow]
    assert sorted(by_default) == list(range(80))
    assert sorted(in_ci) == sorted([*range(80)] * (shares.ONE_IN // one_in - 1))


def test_a_test_that_starts_a_spark_of_its_own_has_its_turns_in_ci_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    for offset in range(shares.ONE_IN):
        monkeypatch.setenv(rotation.VARIABLE, str(offset))
        items = [Item(number, marks=("spark",)) for number in range(80)]
        shares.leave_to_ci(items)
        assert all(item.left_out or item.is_slow for item in items)
        taken += [item.number for item in items if not item.is_slow]
    assert sorted(taken) == list(range(80))


@pytest.mark.parametrize("server", ["moto_server", "spark"])
def test_a_test_that_takes_turns_by_itself_has_no_other_share(server: str) -> None:
    items = [Item(number, server, one_in=3) for number in range(80)]
    shares.leave_to_ci(items)
    assert not any(item.is_slow for item in items)


def test_a_folder_with_few_tests_is_not_left_out() -> None:
    items = [Item(1, "spark", folder="one"), Item(2, "jvm", folder="two"), Item(3, marks=("java",), folder="three")]
    shares.leave_to_ci(items)
    assert not any(item.left_out or item.is_slow for item in items)


def test_tests_that_kill_processes_are_dear() -> None:
    items = [Item(number, folder="processes") for number in range(2 * shares.ONE_IN)]
    elsewhere = [Item(number, folder="stores") for number in range(shares.ONE_IN)]
    for item in elsewhere:
        item.add_marker(pytest.mark.xdist_group("processes"))
    shares.leave_to_ci([*items, *elsewhere])
    assert sum(not item.left_out and not item.is_slow for item in items) == 2
    assert sum(not item.left_out and not item.is_slow for item in elsewhere) == 1


def test_tests_that_say_so_themselves_and_benchmarks_are_dear() -> None:
    marked = [Item(number, folder="cli", marks=("dear",)) for number in range(shares.ONE_IN)]
    benchmarks = [Item(number, folder="benchmarks") for number in range(shares.ONE_IN)]
    shares.leave_to_ci([*marked, *benchmarks])
    assert sum(not item.left_out and not item.is_slow for item in marked) == 1
    assert sum(not item.left_out and not item.is_slow for item in benchmarks) == 1


def test_all_that_is_dear_is_marked_in_every_run() -> None:
    dear = [Item(number, "spark") for number in range(80)]
    cheap = Item(99)
    shares.leave_to_ci([*dear, cheap])
    assert all(item.get_closest_marker("dear") for item in dear)
    assert cheap.get_closest_marker("dear") is None


def test_the_share_of_a_file_is_the_same_without_files_that_hold_nothing_dear() -> None:
    def taken(*others: Item) -> list[bool]:
        items = [Item(number, "moto_server") for number in range(80)]
        shares.leave_to_ci([*others, *items])
        return [item.left_out for item in items]

    assert taken(*[Item(number) for number in range(7)], Item(7, "moto_server", marks=("slow",))) == taken()


def test_other_tests_and_slow_ones_have_no_part_in_it() -> None:
    cheap = [Item(number, "tmp_path") for number in range(20)]
    slow = [Item(number, "moto_server", marks=("slow",)) for number in range(20)]
    shares.leave_to_ci([*cheap, *slow])
    assert not any(item.left_out for item in [*cheap, *slow])


def test_what_is_named_is_run(nothing_is_named: pytest.MonkeyPatch) -> None:
    nothing_is_named.setenv(shares._VARIABLE, "1")
    items = [Item(number, "moto_server") for number in range(20)]
    shares.leave_to_ci(items)
    assert not any(item.left_out for item in items)


@pytest.mark.parametrize("offset", range(5))
def test_of_a_cross_of_parameters_a_run_takes_a_share(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shares._VARIABLE, "")
    monkeypatch.setenv(rotation.VARIABLE, str(offset))
    crossed = [Item(number, one_in=5) for number in range(23)]
    plain = [Item(number) for number in range(9)]
    shares.take_turns([*crossed, *plain])
    taken = [item.number for item in crossed if not item.is_slow]
    assert {number % 5 for number in taken} == {taken[0]}
    assert len(taken) in (4, 5)
    assert not any(item.is_slow for item in plain)


@pytest.mark.parametrize("offset", range(4))
def test_of_a_cross_with_slow_ones_a_run_takes_a_share_of_the_others(
    offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rotation.VARIABLE, str(offset))
    items = [Item(number, marks=("slow",) if number % 2 else (), one_in=4) for number in range(24)]
    shares.take_turns(items)
    assert sum(not item.is_slow for item in items) == 3


@pytest.mark.parametrize("folder", sorted(shares.CROSSING))
@pytest.mark.parametrize(("cases", "turns"), [(2, 2), (shares.MANY_CASES - 1, 2), (shares.MANY_CASES, 4)])
def test_the_cases_of_a_test_take_turns(folder: str, cases: int, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    for offset in range(turns):
        monkeypatch.setenv(rotation.VARIABLE, str(offset))
        several = [Item(number, folder=folder) for number in range(cases)]
        several += [Item(99, folder=folder, marks=("slow",))]
        shares.take_turns(several)
        taken += [item.number for item in several if not item.is_slow]
    assert sorted(taken) == list(range(cases))


@pytest.mark.parametrize("offset", range(2))
def test_the_case_beside_those_that_take_turns_runs_at_every_second_commit(
    offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rotation.VARIABLE, str(offset))
    on_disk = Item(0, folder="engine")
    elsewhere = [Item(number, folder="engine", one_in=5) for number in range(1, 5)]
    shares.take_turns([on_disk, *elsewhere])
    assert on_disk.is_slow == bool(rotation.first_of(2, "tests/engine/test_file.py::test"))
    assert sum(not item.is_slow for item in elsewhere) == 1


def test_a_single_case_those_with_a_server_and_those_elsewhere_take_no_turns() -> None:
    single = [Item(1, folder="engine")]
    dear = [Item(number, "moto_server", folder="stages") for number in range(9)]
    elsewhere = [Item(number, folder="simulate") for number in range(9)]
    for items in (single, dear, elsewhere):
        shares.take_turns(items)
        assert not any(item.is_slow for item in items)


def test_of_two_shares_a_test_has_the_smaller_one() -> None:
    items = [Item(number, one_in=7) for number in range(14)]
    for item in items[::2]:
        item.marks.insert(0, pytest.mark.one_in(2))
    shares.take_turns(items)
    assert sum(not item.is_slow for item in items) == 2


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
    shares.keep_together([*items, own])
    assert [item.group for item in items] == ["moto", "seaweedfs", "java-interop", "java-emulators", "spark", None]
    assert own.group == "cluster"


def test_a_file_of_many_tests_is_a_group() -> None:
    few = [Item(number, folder="few") for number in range(shares.SMALL_TESTS - 1)]
    few += [Item(number, folder="few", marks=("slow",)) for number in range(9)]
    many = [Item(number, folder="many") for number in range(shares.SMALL_TESTS)]
    own = Item(99, "spark", folder="many")
    shares.keep_together([*few, *many, own])
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
        shares.keep_together(made)
        shares.longest_first(made)
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
