"""A refused rename or link says which of its two paths was refused, and how the cause is seen and removed."""

from __future__ import annotations

import errno
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig, StorePath
from committer.errors import CommitterError, StorePermissionError
from committer.stores.azure.errors import error_of as azure_error
from committer.stores.gcs.errors import error_of as gcs_error
from committer.stores.hdfs.errors import error_of as hdfs_error
from committer.stores.http import Answer
from committer.stores.local import LocalStore
from committer.stores.local.rights import why_refused

OLD_FILES = CommitterConfig(conflict_mode="replace", superseded_scope="destination")
SAME_NAME = CommitterConfig(existing_target="replace")


@pytest.fixture
def protect(tmp_path: Path) -> Iterator[Callable[[str, Path], None]]:
    """Sets an attribute with chattr(1), which takes a right and a file system that knows it."""

    def call(flag: str, path: Path) -> None:
        try:
            done = subprocess.run(["chattr", f"+{flag}", path], capture_output=True, check=False)
        except OSError:
            pytest.skip("there is no chattr")
        if done.returncode:
            pytest.skip(f"chattr fails: {done.stderr!r}")

    yield call
    subprocess.run(["chattr", "-R", "-ia", tmp_path], capture_output=True, check=False)


@pytest.mark.parametrize("flag", ["i", "a"])
@pytest.mark.parametrize(("config", "new"), [(OLD_FILES, "p/new"), (SAME_NAME, "p/it's old")])
@pytest.mark.parametrize("which", ["p/it's old", "p"])
async def test_an_old_file_that_cannot_be_moved_is_named(
    tmp_path: Path, protect: Callable[[str, Path], None], which: str, config: CommitterConfig, new: str, flag: str
) -> None:
    table = tmp_path / "table"
    (table / "p").mkdir(parents=True)
    (table / "p/it's old").write_bytes(b"old")
    job = await committer.open_job(table, job_id="j", config=config)
    async with job.task_attempt(0) as task, task.open(new) as file:
        await file.write(b"new")
    protect(flag, table / which)
    with pytest.raises(CommitterError) as caught:
        await job.commit(tasks=1)
    await job.close()
    word = {"i": "immutable", "a": "append-only"}[flag]
    told = str(caught.value)
    assert f"{table / which} is {word}" in told
    assert caught.value.path in (f"file:{table}/p/it's old", f"file:{table}/{new}")
    shown = re.search(r"\((lsattr -d .*?) shows the attribute\)", told)
    mended = re.search(r"let root run: (chattr .*?) \(lsattr", told)
    assert shown is not None
    assert mended is not None
    seen = subprocess.run(shlex.split(shown[1]), capture_output=True, text=True, check=True).stdout
    assert flag in seen.split()[0]
    subprocess.run(shlex.split(mended[1]), check=True)
    report = await committer.recover(table, "j")
    assert report.success
    assert (table / new).read_bytes() == b"new"


async def test_what_hinders_at_the_destination_is_told_of_the_destination(
    tmp_path: Path, protect: Callable[[str, Path], None]
) -> None:
    (tmp_path / "from").write_bytes(b"x")
    (tmp_path / "to").mkdir()
    protect("i", tmp_path / "to")
    target = StorePath.of(tmp_path / "to/x")
    for call in (LocalStore().rename_file, LocalStore().link_file):
        with pytest.raises(StorePermissionError) as caught:
            await call(StorePath.of(tmp_path / "from"), target)
        assert caught.value.path == str(target)
        assert f"{tmp_path}/to is immutable" in caught.value.message
    with pytest.raises(StorePermissionError, match="is immutable"):
        await LocalStore().put(target, b"x")


def test_an_attribute_is_no_cause_of_missing_rights(tmp_path: Path, protect: Callable[[str, Path], None]) -> None:
    """The system answers EPERM for an attribute, and EACCES where rights are missing."""
    (tmp_path / "secret").write_bytes(b"x")
    protect("a", tmp_path)
    path = StorePath.of(tmp_path / "secret")
    assert why_refused(errno.EACCES, path) is None
    refused = why_refused(errno.EPERM, path)
    assert refused is not None
    assert refused.reason == f"{tmp_path} is append-only"


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ('access=WRITE, inode=\\"/t/p\\":root:x:drwx', "/t/p/old"),
        ('user=bob, path=\\"/t/p/old\\":root:x:-rw-, parent=\\"/t/p\\":root:x:drwxrwxrwt', "/t/p/old"),
        ('access=WRITE, inode=\\"/t/_temporary/j\\":root:x:drwx', "/t/_temporary/j/0"),
        ("a policy says so", "/t/_temporary/j/0"),
    ],
)
def test_on_hdfs(said: str, at: str) -> None:
    text = f'RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied: {said}")'
    source, aside = StorePath.of("hdfs://nn/t/p/old"), StorePath.of("hdfs://nn/t/_temporary/j/0")
    error = hdfs_error(RuntimeError(text.replace('\\"', '"')), "rename_file", aside, source=source)
    assert isinstance(error, StorePermissionError)
    assert error.path == f"hdfs://nn{at}"


@pytest.mark.parametrize("error_of", [azure_error, gcs_error])
def test_where_the_service_does_not_say_which_both_are_named(error_of: Callable[..., CommitterError]) -> None:
    source, aside = StorePath.of("abfss://c@a/t/p/old"), StorePath.of("abfss://c@a/t/_temporary/j/0")
    error = error_of(Answer(403, {}, b""), "rename_file", aside, source=source)
    assert isinstance(error, StorePermissionError)
    assert error.path == str(source)
    assert f"{source} cannot be renamed to {aside}" in error.message
