"""The workflows name what the scripts and pages have."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
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
