"""Figures of the size of this code base, beside their aims: `python scripts/house.py [--write | --list]`.

`--write` replaces the table in docs/architecture.md, `--list` names the places behind the figures that should fall.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import re
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "committer"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- house -->", "<!-- end house -->"
SMALL = 120  # lines of a module that can be merged with its only importer


class Row(NamedTuple):
    """One line of the table. `figures` and `aims` have the same length."""

    name: str
    figures: tuple[int, ...]
    aims: tuple[int, ...]
    places: tuple[str, ...] = ()


# --- Files and lines ----------------------------------------------------------------------------------------------


def lines_of(*paths: Path) -> int:
    """Counts the lines of files."""
    return sum(len(path.read_bytes().splitlines()) for path in paths)


def sources(folder: Path, *suffixes: str) -> list[Path]:
    """Finds the files below a folder that have one of these suffixes."""
    return sorted(path for path in folder.rglob("*") if path.suffix in suffixes)


@cache
def tree_of(path: Path) -> ast.Module:
    """Parses a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


# --- Imports ------------------------------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    """Returns the dotted name of a module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(node: ast.AST, package: str) -> Iterator[str]:
    """Yields the dotted names that are imported in a syntax tree, except for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = package.split(".")[: -child.level + 1 or None] if child.level else []
            source = ".".join([*base, *filter(None, [child.module])])
            yield from (f"{source}.{alias.name}" for alias in child.names)
        else:
            yield from imports_of(child, package)


def import_graph(paths: list[Path]) -> dict[str, set[str]]:
    """Maps each module to the modules of the package that it imports."""
    modules = {module_name(path): path for path in paths}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        named = set(imports_of(tree_of(path), package))
        found = {full if full in modules else full.rpartition(".")[0] for full in named}
        graph[name] = (found & modules.keys()) - {name}
    return graph


def components(graph: dict[str, set[str]]) -> list[set[str]]:
    """Finds the strongly connected components, each after those that it imports (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for target in graph[node]:
            if target not in order:
                visit(target)
            if target in stack:
                lowest[node] = min(lowest[node], lowest[target])
        if lowest[node] == order[node]:
            at = stack.index(node)
            found.append(set(stack[at:]))
            del stack[at:]

    for node in graph:
        if node not in order:
            visit(node)
    return found


def floors(graph: dict[str, set[str]]) -> tuple[str, ...]:
    """Returns the longest chain of imports between packages, from the top down.

    A module at the top level counts as a package.
    """
    packages: dict[str, set[str]] = defaultdict(set)
    for name, imported in graph.items():
        packages[_package(name)] |= {_package(target) for target in imported} - {_package(name), "committer"}
    best: dict[str, tuple[str, ...]] = {}
    for component in components(dict(packages)):
        below = max((best[to] for node in component for to in packages[node] - component), key=len, default=())
        best.update(dict.fromkeys(component, (" : ".join(sorted(component)), *below)))
    return max(best.values(), key=len)


def _package(name: str) -> str:
    return ".".join(name.split(".")[:2])


def small_with_one_importer(graph: dict[str, set[str]], paths: list[Path]) -> tuple[str, ...]:
    """Finds the modules under 120 lines that exactly one other module imports. Packages are left out."""
    importers: dict[str, set[str]] = defaultdict(set)
    for name, imported in graph.items():
        for target in imported:
            importers[target].add(name)
    small = [path for path in paths if path.name != "__init__.py" and lines_of(path) < SMALL]
    return tuple(
        f"{path.relative_to(ROOT)} <- {next(iter(importers[name]))}"
        for path in small
        if len(importers[name := module_name(path)]) == 1
    )


# --- What runs ----------------------------------------------------------------------------------------------------


async def one_job(destination: str) -> None:
    """Commits a job of one task and one file, by message."""
    import committer

    async with committer.open_job(destination, delivery="message") as job:
        async with job.task_attempt(task=0) as task, task.open("part-0") as file:
            await file.write(b"data")
        await job.commit(task_commits=[task.task_commit])


def functions_run() -> set[CodeType]:
    """Runs the job twice, and returns the functions of the package that the second run called, in any thread."""
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for run in ("first", "second"):
                called.clear()
                asyncio.run(one_job(f"{folder}/{run}"))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    inside = f"{PACKAGE}/"
    return {code for code in called if code.co_filename.startswith(inside)}


# --- Prose --------------------------------------------------------------------------------------------------------

# Clauses in place of a noun or a verb, pronouns as subjects, and verbs that the field does not use.
# A line may begin with "Whether".
DIALECT = re.compile(
    r"^(What|Who|Whose|Whom|Where|When|Which|How|Why|Those|That|Such|Of|One (that|of|more))\b|^(Its?|They|This|These)\b"
    # "None if it does not exist" is plain: the clause names its noun right before.
    r"|(?<!\bif )\bit (is|was|has|had|can|could|does|did|says?|holds?|knows?|needs?|takes?|gives?|goes|comes?)\b"
    r"|\bwhat is\b"
    r"|\bst(and|ands|ood)\b|\b(comes?|came|arrives?) late\b|\b(is|are|was|were|be) told\b|\bgo(es)? by\b"
    r"|\b(tak(e|es|en|ing)|giv(e|es|en|ing)) (it |them )?(back|away)\b|\b(lets?|left) be\b|\bto be had\b",
    re.IGNORECASE,
)


def in_dialect(paths: list[Path]) -> tuple[str, ...]:
    """Finds the docstrings whose first line is in the dialect."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for path in paths:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, documented) and node.body and isinstance(first := node.body[0], ast.Expr):
                text = first.value.value if isinstance(first.value, ast.Constant) else None
                if isinstance(text, str) and DIALECT.search(line := text.strip().partition("\n")[0]):
                    found.append(f"{path.relative_to(ROOT)}:{first.lineno}: {line}")
    return tuple(found)


# --- The table ----------------------------------------------------------------------------------------------------


def changelog_lines() -> int:
    """Counts the lines on 0.1.0 in the changelog, without blank ones."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = text.partition("\n## 0.1.0")[2].partition("\n## ")[0]
    return sum(bool(line.strip()) for line in section.splitlines()[1:])


def rows() -> list[Row]:
    """Measures everything."""
    sys.path.insert(0, str(ROOT))  # the package of this tree, wherever another one is installed
    from committer import CommitterConfig

    wheel = sources(PACKAGE, ".py", ".java")
    modules = sources(PACKAGE, ".py")
    graph = import_graph(modules)
    ran = functions_run()
    files = sorted({code.co_filename for code in ran})
    small = small_with_one_importer(graph, modules)
    top = tuple(str(path.relative_to(ROOT)) for path in sorted(PACKAGE.glob("*.py")))
    chain = floors(graph)
    stores = "\n".join(path.read_text(encoding="utf-8") for path in (PACKAGE / "stores").glob("*.py"))
    abilities = tuple(sorted(re.findall(r"^class (Supports\w+)", stores, re.MULTILINE)))
    dialect = in_dialect(modules)
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    protocol = lines_of(ROOT / "docs" / "protocol.md")
    return [
        Row("lines of `committer/` (Python and Java)", (lines_of(*wheel),), (60_000,)),
        Row("files of it", (len(wheel),), (330,)),
        Row("functions / files that run for a job of one file", (len(ran), len(files)), (450, 80), tuple(files)),
        Row(f"modules under {SMALL} lines with one importer", (len(small),), (25,), small),
        Row("modules at the top level of `committer/`", (len(top),), (14,), top),
        Row("floors of imports", (len(chain),), (14,), chain),
        Row("optional abilities of a store", (len(abilities),), (13,), abilities),
        Row("fields of `CommitterConfig`", (len(CommitterConfig.__struct_fields__),), (28,)),
        Row("first lines of docstrings in the dialect", (len(dialect),), (0,), dialect),
        Row("lines of docs/protocol.md", (protocol,), (280,)),
        Row("lines of the changelog for 0.1.0", (changelog_lines(),), (40,)),
        Row("decisions", (len(decisions),), (14,)),
        Row("lines of `tests/`", (lines_of(*sources(ROOT / "tests", ".py")),), (75_000,)),
    ]


def table(found: list[Row]) -> str:
    """Renders the rows as a table."""
    head = ["| figure | now | aim, at most |", "|---|---|---|"]
    return "\n".join([*head, *(f"| {row.name} | {_cell(row.figures)} | {_cell(row.aims)} |" for row in found)])


def _cell(numbers: tuple[int, ...]) -> str:
    return " / ".join(f"{number:,}" for number in numbers)


def main() -> None:
    """Prints the table, and writes it into its page if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the table in docs/architecture.md")
    parser.add_argument("--list", action="store_true", help="print the places behind each figure")
    wanted = parser.parse_args()
    found = rows()
    if wanted.list:
        for row in found:
            if row.places:
                print(f"\n{row.name}:", *row.places, sep="\n  ")
        print()
    print(table(found))
    if wanted.write:
        text = PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
