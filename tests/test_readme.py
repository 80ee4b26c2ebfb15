"""The README's commands and snippets are real."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from committer.advice import PAGES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_one_command_runs_the_example_and_one_the_tests() -> None:
    example, tests = blocks("sh")[0].splitlines()[-1], blocks("sh")[-1].strip()
    assert example.endswith("examples/flights.py")
    assert tests.endswith("pytest -n 2")
    for command in (example, tests):
        assert "--locked" in command


def test_ci_runs_the_readmes_test_command() -> None:
    # .ci/run takes the first line that matches this from the README and runs it.
    pattern = r"^python3 -m pip install .*pytest.*"
    found = re.findall(pattern, README, re.MULTILINE)
    assert found == [blocks("sh")[-1].strip()]
    assert "'^python3 -m pip install .*pytest'" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_python_snippet_commits(tmp_path: Path) -> None:
    snippet = blocks("python")[0].replace("/data/flights", str(tmp_path / "flights"))
    done = subprocess.run([sys.executable, "-W", "error", "-c", snippet], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 files, 6 bytes\n"
    assert (tmp_path / "flights" / "year=2026" / "part-00000.csv").read_bytes() == b"1,2,3\n"
    assert (tmp_path / "flights" / "_SUCCESS").exists()


def test_its_links_lead_somewhere_on_a_registrys_page_too() -> None:
    home = PAGES.removesuffix("/docs")
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    for link in links:
        assert link.startswith(f"{home}/"), link
        page, _, heading = link.removeprefix(home).lstrip("/").partition("#")
        assert (ROOT / page).is_file(), link
        assert not heading or f"# {heading}\n" in (ROOT / page).read_text(encoding="utf-8").lower(), link


def test_the_metadata_points_to_the_same_home() -> None:
    home = PAGES.partition("/blob/")[0]
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert {"Documentation", "Source", "Issues", "Changelog"} <= urls.keys()
    for name, url in urls.items():
        assert url.startswith(home), name
        path = url.partition("/blob/main/")[2]
        assert not path or (ROOT / path).is_file(), url
    assert f"repo_url: {home}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
