"""The share of a sweep that one run takes: the same for one commit, everything over the commits, never nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests import rotation

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("one_in", [1, 2, 7, 30])
def test_every_place_has_its_turn(one_in: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places = range(20)
    taken = []
    for offset in range(one_in):
        monkeypatch.setenv(rotation.VARIABLE, str(offset))
        taken.append(rotation.rotated(places, one_in, "a sweep"))
    assert sorted({place for some in taken for place in some}) == list(places)
    assert all(taken)
    assert sum(map(len, taken)) == max(len(places), one_in)


def test_nothing_has_no_share() -> None:
    assert rotation.rotated([], 7) == []


def test_a_sweep_that_counts_takes_every_number_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for offset in range(5):
        monkeypatch.setenv(rotation.VARIABLE, str(offset))
        taken += list(islice(rotation.Share(5, "a sweep").counted(), 4))
    assert sorted(taken) == list(range(1, 21))
    assert list(islice(rotation.Share(1, "a sweep").counted(), 3)) == [1, 2, 3]


def test_what_a_share_meets_is_of_what_the_whole_meets() -> None:
    rotation.Share(5, "").check_seen({"a"}, {"a", "b"})
    rotation.Share(5, "").check_seen(set(), {"a", "b"})
    rotation.Share(1, "").check_seen({"a", "b"}, {"a", "b"})
    for one_in, seen in ((5, {"c"}), (1, set[str]()), (1, {"a"})):
        with pytest.raises(AssertionError):
            rotation.Share(one_in, "").check_seen(seen, {"a", "b"})


def test_two_sweeps_of_one_run_begin_at_different_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rotation.VARIABLE, "0")
    assert len({rotation.first_of(9, f"sweep {number}") for number in range(100)}) == 9


def test_each_commit_has_a_number_of_its_own_and_no_commit_has_0(tmp_path: Path) -> None:
    assert rotation.offset_of_commit(tmp_path) == 0

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    assert rotation.offset_of_commit(tmp_path) == 0
    seen = set()
    for number in range(3):
        git("commit", "--allow-empty", "-m", str(number))
        seen.add(rotation.offset_of_commit(tmp_path))
        assert rotation.offset_of_commit(tmp_path) in seen
    assert len(seen) == 3


def test_a_machine_without_git_has_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert rotation.offset_of_commit(ROOT) == 0


def run_pytest(tmp_path: Path, *words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_run_says_its_number_and_goes_by_the_one_it_is_given(tmp_path: Path) -> None:
    told = run_pytest(tmp_path, "tests/test_rotation.py", "-k", "nothing_has", **{rotation.VARIABLE: "4711"})
    assert f"{rotation.VARIABLE}=4711" in told


def test_what_failed_is_told_with_the_command_that_runs_it_again(tmp_path: Path) -> None:
    test = "tests/test_rotation.py::test_what_fails_only_when_asked"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}", test],
        cwd=ROOT,
        env={**os.environ, rotation.VARIABLE: "4711", "COMMITTER_TEST_FAILS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"again: {rotation.VARIABLE}=4711 uv run pytest -m '' {test}" in done.stdout


def test_what_fails_only_when_asked() -> None:
    assert "COMMITTER_TEST_FAILS" not in os.environ


@pytest.mark.parametrize(
    ("nodeid", "name"),
    [
        ("tests/a.py::test[x@y]", "tests/a.py::test[x@y]"),
        ("tests/a.py::test[x@y]@java-interop", "tests/a.py::test[x@y]"),
    ],
)
def test_a_test_is_named_without_its_group(nodeid: str, name: str) -> None:
    assert rotation.name_of(nodeid) == name


def test_every_process_of_a_run_goes_by_its_number() -> None:
    assert os.environ[rotation.VARIABLE] == str(rotation.offset())
