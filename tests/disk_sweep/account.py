"""The files at a destination, found by a walk alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tests.job_paths import in_job

Tree: TypeAlias = dict[str, str]


class Wrong(AssertionError):
    """Something exists there that must not, or does not that must."""


def put(table: str, tree: Tree) -> None:
    """Puts files there, of no job."""
    for name, text in tree.items():
        path = Path(table, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def look(table: str) -> tuple[Tree, str]:
    """Every file but the marker and what jobs keep in `_temporary`, and which job the marker names."""
    tree: Tree = {}
    marker = ""
    for top, directories, names in os.walk(table):
        if top == table and "_temporary" in directories:
            directories.remove("_temporary")
        for name in names:
            path = os.path.join(top, name)
            text = Path(path).read_text()
            if top == table and name == "_SUCCESS" and text.startswith("{"):
                marker = str(json.loads(text)["jobId"])
            else:
                tree[os.path.relpath(path, table)] = text
    return tree, marker


class Fate(NamedTuple):
    """What the records of a job say, read as they lie there.

    Attributes:
        stands: Whether the job has a directory.
        intent: Whether a driver said that it would commit it.
        decision: ``commit`` or ``abort``; empty while it is undecided.
        outcome: ``committed`` or ``rolled-back``; empty before.
    """

    stands: bool = False
    intent: bool = False
    decision: str = ""
    outcome: str = ""


def fate(table: str, job: str) -> Fate:
    """How far a job came."""
    directory = in_job(Path(table), job)
    if not directory.is_dir():
        return Fate()
    said = {}
    for name in ("decision", "outcome"):
        path = directory / name
        said[name] = str(json.loads(path.read_text())[name]) if path.is_file() else ""
    intents = [path for path in directory.iterdir() if path.name.startswith("intent")]
    return Fate(True, bool(intents), said["decision"], said["outcome"])


def left(table: str) -> list[str]:
    """What jobs left in `_temporary`."""
    return [
        os.path.relpath(os.path.join(top, name), table)
        for top, directories, names in os.walk(os.path.join(table, "_temporary"))
        for name in [*directories, *names]
    ]


def tell(tree: Tree, wanted: Tree) -> str:
    """How two trees differ."""
    said = [f"missing {name}" for name in sorted(wanted.keys() - tree.keys())]
    said += [f"extra {name}" for name in sorted(tree.keys() - wanted.keys())]
    said += [
        f"{name} holds {tree[name]!r}" for name in sorted(tree.keys() & wanted.keys()) if tree[name] != wanted[name]
    ]
    return ", ".join(said) or "no difference"
