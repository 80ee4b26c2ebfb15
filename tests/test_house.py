"""The figures of size, and their table in docs/architecture.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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
