"""examples/embed_asyncio.py: what it prints, that it blocks no loop, and what it leaves behind."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from blockbuster import blockbuster_ctx

import committer

ROOT = Path(committer.__file__).parent.parent
SCRIPT = ROOT / "examples" / "embed_asyncio.py"

EXPECTED = """\
three exports run in the service's TaskGroup
weekly: committed, 4 files
daily: committed, 4 files
slow: still waits for its last part, so it is cancelled from outside
slow: cancelled, jobs left behind: []
slow: nothing was published (JobNotFoundError)
the service's session is still open
slow, started again with the same session: committed, 4 files
daily: 4 files compared with _SUCCESS, all good
slow: 4 files compared with _SUCCESS, all good
weekly: 4 files compared with _SUCCESS, all good
"""


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("embed_asyncio", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_in_a_running_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = load()
    # The guard of conftest.py watches the library; here the example's own code is watched too.
    with blockbuster_ctx(scanned_modules=[example]) as guard:
        # It prints its report.
        guard.functions["io.TextIOWrapper.write"].deactivate()
        for function in guard.functions.values():
            # The library imports its parts when they are first used, once a process.
            function.can_block_in("<frozen importlib._bootstrap>", {"_find_and_load"})
        await example.main(str(tmp_path))
    assert capsys.readouterr().out == EXPECTED
    for name in ("daily", "slow", "weekly"):
        files = sorted(path.relative_to(tmp_path / name).as_posix() for path in (tmp_path / name).rglob("*.csv"))
        assert files == [f"part={number}/{name}.csv" for number in range(4)]
        assert (tmp_path / name / files[0]).read_text().splitlines()[:2] == ["report,part,row", f"{name},0,0"]
        assert not (tmp_path / name / "_temporary").exists()


def test_as_a_script() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == EXPECTED
