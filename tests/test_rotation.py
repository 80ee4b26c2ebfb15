"""The share of a sweep that one run takes: the same for one commit, everything over the commits, never nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import rotation

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("share", [1, 2, 7, 30])
def test_every_place_has_its_turn(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places = range(20)
    taken = []
    for offset in range(share):
        monkeypatch.setenv(rotation.VARIABLE, str(offset))
        taken.append(rotation.rotated(places, share, "a sweep"))
    assert sorted({place for some in taken for place in some}) == list(places)
    assert all(taken)
    assert sum(map(len, taken)) == max(len(places), share)


def test_nothing_has_no_share() -> None:
    assert rotation.rotated([], 7) == []


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


def test_every_process_of_a_run_goes_by_its_number() -> None:
    assert os.environ[rotation.VARIABLE] == str(rotation.offset())
