"""``python -m committer_testing.simulate``, and ``python -m tests.simulate``: what they print, write and answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from committer_testing.simulate.command import main
from tests.simulate import __main__ as planting
from tests.simulate import mutants


def test_clean_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    assert main(["--seeds", "5", "--json", str(path)]) == 0
    assert "5 schedules, " in capsys.readouterr().out
    result = json.loads(path.read_text())
    assert set(result) == {"schedules", "calls", "faults", "violations", "seconds"}
    assert result["schedules"] == 5
    assert result["calls"] > 100
    assert result["violations"] == []


def test_violation_names_its_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    assert planting.main(["--seeds", "1", "--mutant", "decided-after-publishing", "--json", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "again: python -m tests.simulate --replay 0 --mutant decided-after-publishing" in shown
    violation = next(one for one in json.loads(path.read_text())["violations"] if one["guarantee"] == "G6")
    assert violation["seed"] == 0
    assert violation["message"] in shown
    assert any("rename_file" in line for line in violation["history"])


def test_replay_tells_the_history(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--replay", "3"]) == 0
    shown = capsys.readouterr().out
    assert "seed 3, store " in shown
    assert "j0.driver       1 make_directory out/_temporary" in shown
    assert "1 schedules" in shown


def test_start_moves_the_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--start", "7"]) == 0
    two = capsys.readouterr().out.split(" calls")[0]
    assert main(["--seeds", "2", "--start", "9"]) == 0
    assert capsys.readouterr().out.split(" calls")[0] != two


def test_all_mutants_when_one_survives(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = "decided-after-publishing"
    monkeypatch.setattr(
        mutants, "MUTANTS", planted := {"harmless": lambda patches: None, known: mutants.MUTANTS[known]}
    )
    monkeypatch.setattr(planting, "MUTANTS", planted)
    path = tmp_path / "mutants.json"
    assert planting.main(["--mutant", "all", "--seeds", "3", "--json", str(path)]) == 1
    assert "SURVIVED" in capsys.readouterr().out
    found = {find["mutant"]: find["seeds"] for find in json.loads(path.read_text())["mutants"]}
    assert found == {"harmless": None, known: 1}


def test_coverage_says_what_was_never_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--coverage"]) == 0
    shown = capsys.readouterr().out
    assert "branches reached, " in shown
    assert "stages/undo/roll_back.py:" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seeds", "0"],
        ["--seeds", "many"],
        ["--exhaustive", "none"],
        ["--mutant", "all"],
        ["--exhaustive", "--replay", "1"],
        ["--unknown"],
    ],
)
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "usage: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], ["--mutant", "nothing"], ["--mutant", "all", "--exhaustive"], ["--mutant", "all", "--replay", "1"]],
)
def test_usage_of_planting(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert planting.main(arguments) == 2
    assert "usage: python -m tests.simulate" in capsys.readouterr().err


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "--exhaustive" in capsys.readouterr().out
