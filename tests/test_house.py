"""The figures of size and their table, the length of files, and what the workflows name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def rows_of(text: str) -> dict[tuple[str, str], list[int]]:
    """The figures of each row, by its name and aim."""
    rows = re.findall(r"^\| (.+) \| ([\d,/ ]+) \| ([\d,/ ]+) \|$", text, re.MULTILINE)
    return {
        (name, aim): [int(figure.replace(",", "")) for figure in figures.split(" / ")] for name, figures, aim in rows
    }


def test_the_page_has_the_rows_of_the_script_and_no_figure_has_grown() -> None:
    """A figure may grow by a twentieth, or by two: not every change has to write the table anew."""
    script = [sys.executable, str(ROOT / "scripts" / "house.py")]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=300, cwd=ROOT)
    measured = rows_of(done.stdout)
    page = rows_of((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("<!-- house -->")[2])
    assert len(measured) > 10
    assert page.keys() == measured.keys()
    pairs = [(name, old, new) for name in page for old, new in zip(page[name], measured[name], strict=True)]
    assert not [pair for pair in pairs if pair[2] > pair[1] + max(2, pair[1] // 20)], "run scripts/house.py --write"


LONGEST = 700


@pytest.mark.parametrize("package", ["committer", "pyspark_committer", "testing"])
def test_no_file_has_more_lines_than_a_reader_keeps_in_mind(package: str) -> None:
    sizes = {path: len(path.read_bytes().splitlines()) for path in (ROOT / package).rglob("*.py")}
    assert sizes
    too_long = {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > LONGEST}
    assert not too_long, "split each by meaning"


WORKFLOWS = ROOT / ".github" / "workflows"


def test_the_nightly_workflow_runs_every_part_of_the_script() -> None:
    parts = re.search(r"^order=\((.*)\)$", (ROOT / "scripts" / "nightly.sh").read_text(), re.MULTILINE)
    matrix = re.search(r"part:\s*\[(.*?)\]", (WORKFLOWS / "nightly.yml").read_text(), re.DOTALL)
    assert parts is not None
    assert matrix is not None
    assert sorted(matrix[1].replace(",", " ").split()) == sorted(parts[1].split())


def test_the_documentation_is_uploaded_from_where_it_is_built() -> None:
    built = re.search(r"^site_dir: (\S+)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert built is not None
    assert f"path: {built[1]}\n" in (WORKFLOWS / "docs.yml").read_text()
