"""A refused rename or link says which of its two paths was refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from committer import StorePath
from committer.errors import CommitterError, StorePermissionError
from committer.stores.azure.errors import error_of as azure_error
from committer.stores.gcs.errors import error_of as gcs_error
from committer.stores.hdfs.errors import error_of as hdfs_error
from committer.stores.http import Answer


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
