"""A share of the sweep; scripts/nightly.sh runs all of it, but what needs a mount, which is marked `slow` here.

A run that ends as it must not is named; `python -m tests.disk_sweep --case NAME` runs it again.
"""

from __future__ import annotations

import faulthandler
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


def sweep(*options: str, root: Path | None = None, before: tuple[str, ...] = (), code: int = 0) -> str:
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
    assert told.returncode == code, told.stdout + told.stderr
    print(told.stdout)
    return told.stdout


@pytest.fixture
def namespace() -> tuple[str, ...]:
    """What a command begins with whose mounts no other process sees."""
    unshare = shutil.which("unshare")
    if not LINUX or unshare is None:
        pytest.skip("only Linux has mount namespaces, by unshare(1)")
    if subprocess.run([unshare, "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount file systems")
    return unshare, "--mount"


def test_share() -> None:
    sweep("--kind", "errors", "--kind", "exits", "--kind", "stops", "--share", "700")


def test_share_on_disks_that_get_full_or_read_only(namespace: tuple[str, ...]) -> None:
    sweep("--kind", "disks", "--disk", "plain", "--victim", "commit", "--share", "300", before=namespace)


@pytest.mark.parametrize("victim", ["commit", "recover", "roll back"])
def test_share_of_sealed_jobs_on_disks_that_get_full_or_read_only(namespace: tuple[str, ...], victim: str) -> None:
    """From the decision on: where task attempts are sealed, directories renamed as a whole, or rolled back."""
    options = ("--kind", "disks", "--disk", "plain", "--flavour", "promote", "--phase", "decision")
    sweep(*options, "--victim", victim, "--share", "8", before=namespace)


def test_share_on_the_disk_of_temporary_files(tmp_path: Path) -> None:
    options = ("--disk", "plain", "--victim", "commit", "--flavour", "replace")
    sweep("--kind", "exits", *options, "--share", "40", root=tmp_path)


def test_share_on_an_overlay(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    options = ("--disk", "plain", "--victim", "commit", "--flavour", "append")
    _on_an_overlay(tmp_path, namespace, *options, "--share", "500")


def test_bug_that_tells_errors_after_the_decision_as_unchanged_is_found() -> None:
    options = ("--kind", "errors", "--disk", "plain", "--victim", "commit", "--flavour", "append")
    found = sweep("--planted", "told unchanged", *options, "--phase", "decision", "--share", "30", code=1)
    assert "told unchanged, but the job is decided to be committed" in found


def test_bug_that_follows_links_is_found() -> None:
    options = ("--kind", "links", "--disk", "plain", "--victim", "clean up", "--flavour", "append")
    found = sweep("--planted", "links are followed", *options, "--share", "10", code=1)
    assert "a link was followed" in found or "something outside was deleted through the link" in found


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


@pytest.fixture
def no_time_limit() -> None:
    """A whole sweep takes longer than the time after which pytest takes a test for one that hangs."""
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.slow
@pytest.mark.usefixtures("no_time_limit")
def test_whole_on_disks_that_get_full_or_read_only(namespace: tuple[str, ...]) -> None:
    sweep("--kind", "disks", "--disk", "plain", before=namespace)


@pytest.mark.slow
@pytest.mark.usefixtures("no_time_limit")
def test_errors_and_exits_on_an_overlay(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    options = ("--kind", "errors", "--kind", "exits", "--disk", "plain", "--victim", "commit", "--flavour", "replace")
    _on_an_overlay(tmp_path, namespace, *options, "--share", "4")
