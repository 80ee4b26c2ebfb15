"""A share of the sweep by default, another at each commit; all of it behind `slow`.

A run that ends as it must not is named; `python -m tests.disk_sweep --case NAME` runs it again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.harness import environment

ROOT = Path(__file__).parents[2]
LINUX = sys.platform == "linux"
SHARED_MEMORY = Path("/dev/shm")

FLAVOURS = ("append", "message", "target", "replace", "promote", "many", "fsync")
DISKS = ("plain", "no flag", "no links")


def sweep(*options: str, root: Path | None = None, before: tuple[str, ...] = ()) -> None:
    where = root or (SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None)
    place = ("--root", str(where)) if where else ()
    told = subprocess.run(
        [*before, sys.executable, "-m", "tests.disk_sweep", *place, *options],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    print(told.stdout)


@pytest.fixture
def namespace() -> tuple[str, ...]:
    """What a command begins with whose mounts nobody else sees."""
    unshare = shutil.which("unshare")
    if not LINUX or unshare is None:
        pytest.skip("only Linux has mount namespaces, by unshare(1)")
    if subprocess.run([unshare, "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount file systems")
    return unshare, "--mount"


@pytest.mark.parametrize(("kind", "share"), [("errors", 400), ("exits", 130), ("stops", 400)])
def test_share(kind: str, share: int) -> None:
    sweep("--kind", kind, "--share", str(share))


def test_share_on_disks_that_get_full_or_read_only(namespace: tuple[str, ...]) -> None:
    sweep("--kind", "disks", "--disk", "plain", "--share", "150", before=namespace)


def test_share_on_the_disk_of_temporary_files(tmp_path: Path) -> None:
    sweep("--kind", "exits", "--disk", "plain", "--flavour", "replace", "--share", "20", root=tmp_path)


def test_share_on_an_overlay(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    _on_an_overlay(tmp_path, namespace, "--flavour", "append", "--disk", "plain", "--share", "300")


def _on_an_overlay(tmp_path: Path, namespace: tuple[str, ...], *options: str) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    # The lower layer has a file, so that the merged one is a copy of it once it is written to.
    (tmp_path / "lower" / "below").write_text("below")
    script = (
        f"mount -t overlay overlay -o lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work "
        f'{tmp_path}/merged || exit 77; exec "$@"'
    )
    if subprocess.run([*namespace, "sh", "-c", script, "sh", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this kernel, or this file system, has no overlays")
    sweep(*options, root=tmp_path / "merged", before=(*namespace, "sh", "-c", script, "sh"))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "share"), [("errors", 8), ("exits", 1), ("stops", 5)])
@pytest.mark.parametrize("disk", DISKS)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_large_share(kind: str, share: int, flavour: str, disk: str) -> None:
    sweep("--kind", kind, "--flavour", flavour, "--disk", disk, "--share", str(share))


@pytest.mark.slow
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_large_share_on_disks_that_get_full_or_read_only(flavour: str, namespace: tuple[str, ...]) -> None:
    sweep("--kind", "disks", "--disk", "plain", "--flavour", flavour, "--share", "5", before=namespace)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "share"), [("errors", 10), ("exits", 1), ("stops", 5)])
def test_large_share_on_an_overlay(kind: str, share: int, tmp_path: Path, namespace: tuple[str, ...]) -> None:
    _on_an_overlay(
        tmp_path, namespace, "--kind", kind, "--flavour", "replace", "--disk", "plain", "--share", str(share)
    )
