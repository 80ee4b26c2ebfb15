"""What is mounted below a directory of a job is never deleted, and the error's advice gets rid of the rest: real mounts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.processes import mounted_below
from tests.processes.harness import run_apart

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")


def run(*arguments: object) -> dict[str, Any]:
    return run_apart(mounted_below.__file__, *arguments)


DEEP = "d/" + "/".join(["deep"] * 40)


@pytest.mark.parametrize("kind", ["tmpfs", "bind", "file"])
@pytest.mark.parametrize("place", ["d", "d/x", "d/x/y/z", DEEP])
def test_nothing_mounted_is_deleted(tmp_path: Path, kind: str, place: str) -> None:
    if kind == "file" and place == "d":
        pytest.skip("a directory is deleted")
    answer = run("delete", kind, place, tmp_path)
    assert answer["error"] == "StoreCrossDeviceError", answer
    assert answer["outcome"] == ("unchanged" if place == "d" else "partial")
    assert answer["named"], answer
    assert answer["kept"]
    assert answer["elsewhere"] == ["precious"]
    assert not answer["temporary"]


def test_nothing_mounted_while_it_is_deleted_is_deleted(tmp_path: Path) -> None:
    answer = run("late", "tmpfs", "d/x", tmp_path)
    assert answer["error"] == "StoreCrossDeviceError", answer
    assert answer["named"], answer
    assert answer["kept"]
    assert not answer["temporary"]


@pytest.mark.parametrize("kind", ["tmpfs", "bind", "file"])
@pytest.mark.parametrize("place", ["mounted", "p=1/mounted"])
@pytest.mark.parametrize(
    ("action", "outcome", "left"), [("commit", "committed", ["_SUCCESS", "p=1/new"]), ("abort", "partial", [])]
)
def test_job_ends_when_the_advice_is_followed(
    tmp_path: Path, action: str, outcome: str, left: list[str], kind: str, place: str
) -> None:
    answer = run(action, kind, place, tmp_path)
    assert answer["error"] == "StoreCrossDeviceError", answer
    assert answer["outcome"] == outcome
    assert answer["named"], answer
    assert answer["kept"]
    assert answer["elsewhere"] == ["precious"]
    assert answer["left"] == left
    assert not answer["temporary"]
