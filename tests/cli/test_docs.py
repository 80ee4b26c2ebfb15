"""The commands of docs/cli.md and README are run, and what they print is what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from committer.cli.application import app
from committer.cli.text import Exit
from tests.cli.conftest import ROOT, Lake

PAGE = ROOT / "docs" / "cli.md"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PASSING = (
    (r"(?m)\b\d+ (s|min|h)$", "1 s"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00", "2026-11-21T06:30:00+00:00"),
    (r"(took +)[\d.]+ s", r"\g<1>0.1 s"),
    (r"answers in [\d.]+ ms", "answers in 0.4 ms"),
    (r"(committer\.(?:decided\.by|setup) +).*", r"\g<1>8d1f02c3a4b5"),
    (r"release [0-9a-f]{16}, for Spark \S+", "release 0123456789abcdef, for Spark 2.13-4.3.0"),
    (r"Spark \d+\.\d+\.\d+, in this", "Spark 4.3.0, in this"),
    (r"(with release) \S+, by /\S+", r"\g<1> 0.1.0, by /opt/venv/bin/python"),
    (r"(as user) \S+", r"\g<1> etl"),
    (r"(driver: ).*", r"\g<1>load.py of etl as process 4711 on driver-1: whether it runs is not known here"),
    (r"(host +).*", r"\g<1>driver-1"),
    (r"(principal +).*", r"\g<1>etl"),
    (r"\b[\d.,]+ ms\b", "1 ms"),
    # The records hold the path of the lake.
    (r"(committer_task_manifest_file_size +).*", r"\g<1>1"),
    # How wide a table is depends on where the lake lies.
    (r"─+", "─"),
    (r"(?<=\S) +", " "),
)


def steady(text: str) -> str:
    """Text without what differs from run to run."""
    for pattern, constant in _PASSING:
        text = re.sub(pattern, constant, text)
    return text


def morning_after(directory: Path) -> None:
    """The destination that the page begins with."""
    lake = Lake(directory / "flights")
    lake.decided("nightly")
    lake.open("backfill")
    lake.java()
    (lake.temporary / "0" / "_temporary").mkdir(parents=True)


def half_committed(directory: Path) -> None:
    """The destination of README."""
    Lake(directory / "flights").decided("nightly")


def played(page: Path, directory: Path) -> str:
    """The page, with what its commands print below each."""
    code = 0

    def play(match: re.Match[str]) -> str:
        nonlocal code
        shown = ["```console"]
        for line in match[1].splitlines():
            if not line.startswith("$ "):
                continue
            shown.append(line)
            if line == "$ echo $?":
                shown.append(str(code))
                continue
            program, *words = shlex.split(line[2:].replace("/data", str(directory)))
            assert program == "committer"
            environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
            done = subprocess.run(
                [sys.executable, "-m", "committer.cli", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=ROOT,
                env=environment,
                check=False,
                timeout=300,
            )
            code = done.returncode
            shown.append(done.stdout.replace(str(directory), "/data").rstrip("\n"))
        return "\n".join([*shown, "```"])

    return _BLOCK.sub(play, page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("page", "prepare"), [(PAGE, morning_after), (ROOT / "README.md", half_committed)])
def test_the_page_shows_what_is_printed(page: Path, prepare: Callable[[Path], None], tmp_path: Path) -> None:
    prepare(tmp_path)
    assert steady(played(page, tmp_path)) == steady(page.read_text(encoding="utf-8"))


def test_the_page_names_every_command_and_exit_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in app:
        if not name.startswith("-"):
            assert re.search(rf"^\| `{name}[ `]", page, re.MULTILINE), name
    for code in Exit:
        assert re.search(rf"^\| {code.value} \|", page, re.MULTILINE), code
