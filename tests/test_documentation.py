"""The documentation as a whole, and what messages say of it: an address that leads somewhere, as a wheel holds no page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import committer
from committer.advice import PAGES, page

PACKAGE = Path(committer.__file__).parent
DOCS = PACKAGE.parent / "docs"


def texts_of(file: Path) -> list[str]:
    """The texts of a module that are no docstrings, with the pages that its calls of `page` name."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]


def pages_of(file: Path) -> list[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "page"]
    return [ast.literal_eval(call.args[0]) for call in calls]


MODULES = [file for file in PACKAGE.rglob("*.py") if file.name != "documentation.py"]


def test_no_message_names_a_file_that_a_wheel_lacks() -> None:
    # To parse all modules takes seconds: the text of one that names none is enough.
    sources = {file: file.read_text(encoding="utf-8") for file in MODULES}
    naming = [file for file, text in sources.items() if ".md" in text or "docs" in text]
    told = {str(file): [text for text in texts_of(file) if re.search(r"\bdocs/|\w\.md\b", text)] for file in naming}
    pages = {name for file in MODULES if "page(" in sources[file] for name in pages_of(file)}
    assert not {file: found for file, texts in told.items() if (found := [text for text in texts if text not in pages])}


def test_pages_that_are_named_are_there() -> None:
    names = {name for file in MODULES for name in pages_of(file)}
    assert names
    for name in sorted(names):
        check_page(name)


def check_page(name: str) -> None:
    file, _, anchor = name.partition("#")
    text = (DOCS / file).read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.split("\n")
        if line.startswith("#")
    }
    assert not anchor or anchor in headings, name
    assert page(name) == f"{PAGES}/{name}"


# --- The site -----------------------------------------------------------------------------------------------------


def test_every_page_has_one_place_in_the_site() -> None:
    text = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    nav = text.partition("\nnav:\n")[2].partition("\n\n")[0]
    placed = re.findall(r"(\S+\.md)$", nav, re.MULTILINE)
    assert sorted(placed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


_PROSE = [
    *sorted(DOCS.rglob("*.md")),
    *(
        DOCS.parent / name
        for name in (
            "README.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "benchmarks/README.md",
            "examples/README.md",
            "testing/README.md",
        )
    ),
]


_IN_THE_REPOSITORY = re.compile(
    r"(?<![\w/.-])((?:tests|testing|committer|benchmarks|examples|scripts|docs)/[\w/.-]*\w)"
)


@pytest.mark.parametrize("page", _PROSE, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_files_that_pages_name_are_there(page: Path) -> None:
    text = re.sub(r"https?://\S+|^    .*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert not [name for name in _IN_THE_REPOSITORY.findall(text) if not (DOCS.parent / name).exists()]


def test_every_public_name_is_on_an_api_page() -> None:
    shown = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    missing = [name for name in committer.__all__ if name[0] != "_" and f"::: committer.{name}\n" not in f"{shown}\n"]
    # All errors are shown by their module.
    assert missing == ["CommitterError"]
