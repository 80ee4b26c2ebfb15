"""What messages say of the documentation: an address, for a wheel holds no page of it, and one that leads somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import committer
from committer.documentation import PAGES, page

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
    told = {str(file): [text for text in texts_of(file) if re.search(r"\bdocs/|\w\.md\b", text)] for file in MODULES}
    pages = {name for file in MODULES for name in pages_of(file)}
    assert not {file: found for file, texts in told.items() if (found := [text for text in texts if text not in pages])}


@pytest.mark.parametrize("name", sorted({name for file in MODULES for name in pages_of(file)}))
def test_pages_that_are_named_are_there(name: str) -> None:
    file, _, anchor = name.partition("#")
    text = (DOCS / file).read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.split("\n")
        if line.startswith("#")
    }
    assert not anchor or anchor in headings
    assert page(name) == f"{PAGES}/{name}"
