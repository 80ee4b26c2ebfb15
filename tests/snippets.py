"""The snippets of README and docs: found on their pages, and run as they stand.

A page's Python blocks run in order and share their names, as a reader would type them; those of a page in `SCRIPTS` are
files of their own. Only paths below ``/data`` become paths below a directory of the test. What a page says that a block
prints (a ``text`` block, or "It prints `...`") must be printed.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = ("README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")))
_FENCED: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"(?:(?<=\n\n)|\A)(?:    .*\n|\n(?=    ))+")
_PATH: Final = re.compile(r"(?<=[\"'])/data(?=[/\"'])")

# A program that a reader starts in a shell, and what it prints.
_OF_A_SHELL: Final = re.compile(r"^```sh\n(?:(?!```).*\n)*```\n\n```text\n(?:(?!```).*\n)*```$", re.MULTILINE)
_PRINTED: Final = re.compile(r"^```text\n(.*?)^```$|\bIt prints `([^`]+)`", re.MULTILINE | re.DOTALL)

SCRIPTS: Final = frozenset({"docs/several-processes.md"})
"""Pages whose blocks are programs: worker processes must be able to import them."""

LEFT_OUT: Final = {
    (
        "README.md",
        "'.[spark,s3",
    ): "builds and installs; tests/spark/test_releases.py does so with the wheel and the sdist",
    ("docs/getting-started.md", "pip install lake-committer"): "installs from PyPI",
    ("README.md", "examples/flights.py"): "installs from PyPI; tests/spark/test_java.py runs the example",
    ("README.md", "pytest -n 2"): "installs from PyPI, and is what runs this",
    ("docs/retries.md", "def flights(logical_date=None)"): "Airflow",
    ("docs/retries.md", "def flights_asset"): "Dagster",
    ("docs/retries.md", "def flights_task"): "Prefect",
    ("docs/retries.md", "./load.sh"): "a script of the reader's: tests/cli/test_settle.py has the exit codes",
    ("docs/spark.md", "committer doctor /data/new --spark"): "a JDK: tests/cli/test_doctor_of_spark.py compares it",
    (
        "docs/spark.md",
        "lake_committer.zip",
    ): "for a cluster that lacks the package: tests/spark/test_shipping.py has one",
    ("docs/stores/adls.md", "async with committer.open_job"): "an account in Azure, and a credential for it",
    ("docs/stores/adls.md", "ADLS_SIGNATURE"): "an account in Azure, and a signature of it",
    ("docs/stores/azure-blob.md", "async with committer.open_job"): "an account in Azure, and a credential for it",
    ("docs/stores/azure-blob.md", "env:BLOB_KEY"): "an account in Azure, and a key of it",
    ("docs/stores/gcs.md", "storage.service_file"): "a bucket of Google's, and credentials for it",
    ("docs/stores/hdfs.md", "async with committer.open_job"): "a NameNode: tests/hdfs/test_hdfs_snippets.py has one",
    ("docs/stores/hdfs.md", "SparkSession"): "a NameNode at the default port",
    ("docs/stores/s3.md", "LAKE_KEY_ID"): "a bucket of Amazon's, and keys for it",
    ("docs/stores/gcs.md", "async with committer.open_job"): "a bucket of Google's, and credentials for it",
}
"""Blocks that no test can run as they stand, by page and a text that only this block of the page holds; and why."""


class Snippet(NamedTuple):
    """A block of code.

    Attributes:
        page: Its page, relative to the root.
        language: As the page says it.
        line: The line of the page before its first one.
        text: What it holds.
    """

    page: str
    language: str
    line: int
    text: str

    @property
    def reason(self) -> str | None:
        """Why it is not run; None where it is."""
        return next((why for key, why in LEFT_OUT.items() if key[0] == self.page and key[1] in self.text), None)


def snippets(page: str, language: str) -> list[Snippet]:
    """The fenced blocks of a page in one language, in order."""
    text = (ROOT / page).read_text("utf-8")
    return [
        Snippet(page, language, text.count("\n", 0, found.start(2)), found[2])
        for found in _FENCED.finditer(text)
        if found[1] == language
    ]


def indented(page: str) -> list[str]:
    """The blocks of a page that four spaces begin, without what fences hold."""
    text = _FENCED.sub("", (ROOT / page).read_text("utf-8"))
    return [re.sub(r"(?m)^    ", "", found[0]) for found in _INDENTED.finditer(text)]


def runnable(page: str) -> list[Snippet]:
    """The Python blocks of a page that are run."""
    return [snippet for snippet in snippets(page, "python") if snippet.reason is None]


def printed(page: str) -> list[str]:
    """What a page says that its blocks print, in order."""
    found = _PRINTED.finditer(_OF_A_SHELL.sub("", (ROOT / page).read_text("utf-8")))
    return [block.rstrip("\n") or inline for block, inline in (match.groups(default="") for match in found)]


def check_printed(page: str, output: str) -> None:
    """Asserts that `output` holds, in order, what the page says that its blocks print."""
    start = 0
    for expected in printed(page):
        assert expected in output[start:], (page, expected, output)
        start = output.index(expected, start) + len(expected)


def needs_spark(page: str) -> bool:
    """Whether a page's blocks want a Spark session."""
    return any(re.search(r"\bpyspark\b", snippet.text) for snippet in runnable(page))


def placed(found: Iterable[Snippet], directory: Path) -> list[Snippet]:
    """The same, with a directory of the test in place of ``/data``."""
    return [one._replace(text=_PATH.sub(str(directory / "data"), one.text)) for one in found]


def play(found: Iterable[Snippet]) -> dict[str, Any]:
    """Runs blocks in this process; tracebacks show the lines of the page.

    Only a page that speaks of notebooks may await outside a coroutine; such blocks share an event loop, as cells do.

    Returns:
        Their names.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for page, _, line, text in found:
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if "notebook" in (ROOT / page).read_text("utf-8") else 0
            code = compile("\n" * line + text, page, "exec", flags=flags, dont_inherit=True)
            returned = eval(code, names)
            if inspect.iscoroutine(returned):
                runner.run(returned)
    return names


def run_in_child(
    found: Iterable[Snippet], directory: Path, environment: Mapping[str, str] | None = None, *, warnings: str = "error"
) -> str:
    """Runs blocks in a fresh process below `directory`, where every warning is an error; returns what they print."""
    done = subprocess.run(
        [sys.executable, "-W", warnings, "-c", "from tests.snippets import main; main()"],
        input=json.dumps(placed(found, directory)),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_as_scripts(found: Iterable[Snippet], directory: Path) -> str:
    """Runs each block as a program of its own below `directory`; returns what they print."""
    shown = ""
    for number, one in enumerate(placed(found, directory)):
        script = directory / f"script_{number}.py"
        script.write_text(one.text, "utf-8")
        done = subprocess.run(
            [sys.executable, "-W", "error", script.name],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        shown += done.stdout
    return shown


def main() -> None:
    """The fresh process."""
    play([Snippet(*one) for one in json.load(sys.stdin)])
