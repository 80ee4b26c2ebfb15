"""examples/notebook.ipynb: its cells, one after the other, inside a running event loop as in a notebook."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import committer

NOTEBOOK = Path(committer.__file__).parent.parent / "examples" / "notebook.ipynb"


async def run_cells() -> dict[str, Any]:
    """What the notebook's variables hold at its end."""
    names: dict[str, Any] = {}
    for cell in json.loads(await asyncio.to_thread(NOTEBOOK.read_text))["cells"]:
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), "a cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            done = eval(code, names)
            if inspect.isawaitable(done):
                await done
    return names


@pytest.mark.allow_blocking("a cell of a notebook blocks the loop it runs in")
async def test_every_cell_runs() -> None:
    if not NOTEBOOK.exists():
        pytest.skip("needs a clone")
    names = await run_cells()
    try:
        assert names["before"] == []
        assert (names["plan"].files, names["plan"].conflicts) == (2, [])
        assert names["report"].files_committed == 2
        assert names["files"] == ["part-00000.csv", "part-00001.csv"]
        assert names["validation"].ok
    finally:
        await asyncio.to_thread(shutil.rmtree, names["destination"])
