"""The suite is only worth what it catches: each store here has one bug, and fails it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.memory import MemorySpace, MemoryStore
from committer.testing._conformance_base import ConformanceBase
from committer.testing._conformance_directories import DeleteConformance, DirectoryConformance
from committer.testing._conformance_files import FileConformance
from committer.testing._conformance_renames import RenameConformance
from committer.testing._conformance_uploads import BlockListConformance, UploadConformance
from committer.testing.conformance import Channel
from tests.stores import bugs_of_files, bugs_of_uploads
from tests.stores.channels import SpaceChannel
from tests.sweeps import Share

_numbers = itertools.count()


class _Buggy(ConformanceBase):
    bug: type[MemoryStore] = MemoryStore

    @pytest.fixture
    def space(self) -> MemorySpace:
        return MemoryStore.space(f"buggy-{next(_numbers)}", getattr(self.bug, "profile", "local"))

    @pytest.fixture
    def store(self, space: MemorySpace) -> Store:
        return self.bug(space.name)

    @pytest.fixture
    def root(self, space: MemorySpace) -> StorePath:
        root = space.path("root")
        space.tree.make_directory(root, parents=True)
        return root

    @pytest.fixture
    def channel(self, space: MemorySpace, root: StorePath) -> Channel:
        return SpaceChannel(space, root)


class BuggyFiles(_Buggy, FileConformance, DirectoryConformance, RenameConformance):
    pass


class BuggyUploads(_Buggy, DeleteConformance, UploadConformance, BlockListConformance):
    pass


def bugs_in(module: ModuleType, sound: set[str]) -> list[str]:
    return [
        name
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, MemoryStore) and name not in sound
    ]


@pytest.mark.parametrize(
    ("module", "suite", "sound", "at_least"),
    [
        (bugs_of_files, "BuggyFiles", {"MemoryStore"}, 20),
        (bugs_of_uploads, "BuggyUploads", {"MemoryStore", "OnS3", "OnAzure"}, 42),
    ],
    ids=["files", "uploads"],
)
def test_every_bug_is_caught(
    tmp_path: Path, module: ModuleType, suite: str, sound: set[str], at_least: int, share: Share
) -> None:
    """Runs the suite once over them, in a pytest of its own."""
    every = bugs_in(module, sound)
    assert len(every) >= at_least
    bugs = share.of(every)
    lines = [
        "from tests.stores import test_conformance_catches as stores",
        f"from tests.stores import {module.__name__.rpartition('.')[2]} as bugs",
        *(f"class Test{name}(stores.{suite}):\n    bug = bugs.{name}" for name in [*sound, *bugs]),
    ]
    (tmp_path / "test_buggy.py").write_text("\n".join(lines))
    here = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    options = ["-o", "addopts=--import-mode=importlib", f"--rootdir={here}", "-c", str(here / "pyproject.toml")]
    done = subprocess.run(
        [*command, *options, str(tmp_path / "test_buggy.py")],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    caught = {name for name in [*sound, *bugs] if any(f"::Test{name}::" in line for line in failed)}
    assert caught == set(bugs), done.stdout[-3000:] + done.stderr[-2000:]
