"""What the store of HDFS says and does beyond the common suite: refusals, permissions, configuration, processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import committer
from committer.errors import (
    ConfigurationError,
    InvalidPathError,
    RecordError,
    StoreError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
)
from committer.paths import StorePath
from committer.stores.hdfs import HdfsStore
from committer.stores.hdfs.connection import read_configuration
from committer.stores.hdfs.errors import error_of
from tests.hdfs.cluster import Cluster
from tests.interop.jvm import Jvm

WITHOUT_RIGHTS = """
import asyncio, sys
from committer.errors import StorePermissionError
from committer.paths import StorePath
from committer.stores.hdfs import HdfsStore

async def main():
    path = StorePath.of(sys.argv[1])
    store = HdfsStore.open_for(path, {"user": "bob"})
    try:
        await store.put(path / "f", b"x")
    except StorePermissionError as error:
        print("refused", error.next_step, "at org.apache" in str(error))

asyncio.run(main())
"""


ENDING = """
import asyncio, sys
from committer.paths import StorePath
from committer.stores.hdfs import HdfsStore

async def main():
    path = StorePath.of(sys.argv[1])
    store = HdfsStore.open_for(path, {})
    [one async for one in store.list(path)]
    await store.put(path / "f", b"x")

asyncio.run(main())
"""


async def run_script(script: str, *arguments: str, **environment: str) -> str:
    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, **environment},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return await asyncio.to_thread(run)


async def test_a_user_without_rights(directory: StorePath) -> None:
    said = await run_script(WITHOUT_RIGHTS, directory.uri, HADOOP_USER_NAME="bob")
    assert said.startswith("refused give the user the right")
    assert said.rstrip().endswith("False")


async def test_another_user_than_the_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    path = StorePath.of("hdfs://nn:8020/x")
    HdfsStore.open_for(path, {"user": "alice"})
    with pytest.raises(ConfigurationError, match="'alice'") as caught:
        HdfsStore.open_for(path, {"user": "bob"})
    assert "HADOOP_USER_NAME=bob" in caught.value.next_step


async def test_a_quota_that_is_used_up(cluster: Cluster, directory: StorePath, hdfs_store: HdfsStore) -> None:
    await asyncio.to_thread(lambda: cluster.hdfs.setQuota(cluster.path(directory.path), 2, 2**63 - 1))
    await hdfs_store.put(directory / "one", b"")
    with pytest.raises(StoreError, match="a quota is used up") as caught:
        await hdfs_store.put(directory / "two", b"")
    assert "setQuota" in caught.value.next_step


async def test_what_a_snapshot_holds_is_not_deleted(
    cluster: Cluster, directory: StorePath, hdfs_store: HdfsStore
) -> None:
    await hdfs_store.make_directory(directory / "held", parents=False)
    await hdfs_store.put(directory / "held" / "f", b"x")
    held = cluster.path(f"{directory.path}/held")
    await asyncio.to_thread(cluster.hdfs.allowSnapshot, held)
    await asyncio.to_thread(cluster.hdfs.createSnapshot, held, "s")
    with pytest.raises(StoreError, match="a snapshot holds it") as caught:
        await hdfs_store.delete_directory(directory / "held", recursive=True)
    assert "-deleteSnapshot" in (caught.value.next_step or "")
    assert "at org.apache" not in str(caught.value)
    await asyncio.to_thread(cluster.hdfs.deleteSnapshot, held, "s")
    await hdfs_store.delete_directory(directory / "held", recursive=True)


async def test_safe_mode_may_pass(cluster: Cluster, directory: StorePath, hdfs_store: HdfsStore) -> None:
    await asyncio.to_thread(cluster.safe_mode, "ENTER")
    try:
        with pytest.raises(StoreUnavailableError, match="does not serve this now"):
            await hdfs_store.put(directory / "one", b"")
    finally:
        await asyncio.to_thread(cluster.safe_mode, "LEAVE")
    await hdfs_store.put(directory / "one", b"")


async def test_modes_are_those_of_hadoops_client(
    cluster: Cluster, directory: StorePath, hdfs_store: HdfsStore, tmp_path: Path
) -> None:
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.permissions.umask-mode</name><value>077</value></property></configuration>"
    )
    private = HdfsStore.open_for(directory, {"config_directory": str(tmp_path)})
    for store, name in ((hdfs_store, "open"), (private, "closed")):
        await store.make_directory(directory / name, parents=False)
        await store.put(directory / name / "file", b"")

    def modes() -> list[str]:
        names = ("open", "open/file", "closed", "closed/file")
        paths = [cluster.path(f"{directory.path}/{name}") for name in names]
        return [str(cluster.hdfs.getFileStatus(path).getPermission()) for path in paths]

    assert await asyncio.to_thread(modes) == ["rwxr-xr-x", "rw-r--r--", "rwx------", "rw-------"]


async def test_a_process_that_ends_right_after_its_last_call_ends_well(directory: StorePath) -> None:
    """The client's threads may still hold things of Python's, and would abort a process that is shut down."""
    for _run in range(6):
        assert await run_script(ENDING, directory.uri) == ""


async def test_a_file_that_is_given_up_is_gone(directory: StorePath, hdfs_store: HdfsStore) -> None:
    writer = await hdfs_store.open_writer(directory / "f")
    await writer.write(b"x" * (3 << 20))
    await writer.abort()
    assert [one async for one in hdfs_store.list(directory)] == []


async def test_a_job_by_the_command_line(directory: StorePath) -> None:
    job = await committer.open_job(directory.uri, job_id="J")
    await job.close()

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "committer.cli", *words], capture_output=True, text=True, timeout=120, check=False
        )

    shown = await asyncio.to_thread(call, "jobs", directory.uri)
    assert (shown.returncode, "J" in shown.stdout) == (0, True), shown.stderr
    doctor = await asyncio.to_thread(call, "doctor", directory.uri)
    assert doctor.returncode == 0, doctor.stdout
    gone = await asyncio.to_thread(call, "jobs", f"{directory.uri}/missing")
    assert gone.returncode == 4, gone.stderr


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("host", "write it into the path"),
        ("kerb_ticket", "kinit"),
        ("replication", "hdfs-site.xml"),
        ("confg_directory", "config_directory"),
        ("hadoop.security.keystore.password", "in the clear"),
    ],
)
def test_options_that_are_refused(option: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        HdfsStore.open_for(StorePath.of("hdfs://nn:8020/x"), {option: "1"})
    assert said in f"{caught.value} {caught.value.next_step}"


def test_names_that_hdfs_cannot_hold() -> None:
    store = HdfsStore.open_for(StorePath.of("hdfs://nn:8020/x"), {})
    for name in ("a:b", "a\0b", "n" * 8001):
        with pytest.raises(InvalidPathError):
            asyncio.run(store.status(StorePath("hdfs", "nn:8020", f"/{name}")))


def test_the_configuration_says_how_many_name_nodes_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client tries each once: more tries end in a failure of its own."""
    (tmp_path / "hdfs-site.xml").write_text(
        "<configuration>"
        "<property><name>dfs.nameservices</name><value>lake</value></property>"
        "<property><name>dfs.ha.namenodes.lake</name><value>nn1, nn2,nn3</value></property>"
        "</configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert read_configuration("lake", None).name_nodes == 3
    assert read_configuration("nn:8020", None).name_nodes == 1
    assert read_configuration("lake", str(tmp_path)).umask == 0o022
    assert read_configuration("", str(tmp_path), {"fs.defaultFS": "hdfs://lake/x"}).name_nodes == 3
    assert read_configuration("other", str(tmp_path), {"dfs.ha.namenodes.other": "a,b"}).name_nodes == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "names no directory"),
        ("<configuration>", "cannot be read"),
        (
            "<c><property><name>fs.permissions.umask-mode</name><value>rwx</value></property></c>",
            "no mask in octal digits",
        ),
    ],
)
def test_a_configuration_that_cannot_be_read(tmp_path: Path, text: str | None, said: str) -> None:
    if text:
        (tmp_path / "core-site.xml").write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_configuration("lake", str(tmp_path if text else tmp_path / "missing"))


async def test_a_nameservice_that_no_configuration_knows(tmp_path: Path) -> None:
    path = StorePath.of("hdfs://lake/x")
    with pytest.raises(ConfigurationError, match="cannot be reached with this configuration") as caught:
        await HdfsStore.open_for(path, {"config_directory": str(tmp_path)}).status(path)
    assert "HADOOP_CONF_DIR" in caught.value.next_step


@pytest.mark.parametrize("changes", [True, False])
def test_a_failure_inside_the_name_node_leaves_open_what_was_done(changes: bool) -> None:
    error = RuntimeError('RPCError("java.lang.NullPointerException", "at x")')
    told = error_of(error, "rename_file", StorePath.of("hdfs://nn:8020/x"), changes=changes)
    assert isinstance(told, StoreOutcomeUnknownError) is changes


def test_a_refusal_names_no_java_stack() -> None:
    text = 'RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied: user=bob\\n\\tat org.x.Y(Z)")'
    error = error_of(RuntimeError(text), "put", StorePath.of("hdfs://nn:8020/x"))
    assert isinstance(error, StorePermissionError)
    assert error.message == "the NameNode refuses this: Permission denied: user=bob"


_HDFS = "org.apache.hadoop.hdfs"
# As a NameNode and its client say it: the class, the message; what is raised, and what its advice names.
_SAID = [
    (f"{_HDFS}.server.namenode.SafeModeException", "Cannot rename /t. Name node is in safe mode.", "not in safe mode"),
    ("org.apache.hadoop.ipc.StandbyException", "Operation category WRITE is not supported in state standby", "active"),
    (f"{_HDFS}.protocol.NSQuotaExceededException", "The NameSpace quota of directory /t is exceeded", "-setQuota"),
    (f"{_HDFS}.protocol.DSQuotaExceededException", "The DiskSpace quota of /t is exceeded", "-setSpaceQuota"),
    (f"{_HDFS}.protocol.SnapshotException", "The directory /t cannot be deleted since", "-deleteSnapshot"),
    ("java.io.IOException", "/z/f can't be moved from an encryption zone.", "in one whole"),
]


@pytest.mark.parametrize(("kind", "said", "advice"), _SAID)
def test_what_the_name_node_refuses_says_what_to_do(kind: str, said: str, advice: str) -> None:
    text = f'RPCError("{kind}", "{said}\\n\\tat org.x.Y(Z)")'
    error = error_of(RuntimeError(text), "rename_file", StorePath.of("hdfs://nn:8020/x"))
    assert said in error.message
    assert advice in (error.next_step or "")
    assert "at org" not in str(error)
    waits = kind.endswith(("SafeModeException", "StandbyException"))
    assert error.outcome == "unchanged"
    assert (isinstance(error, StoreUnavailableError) and error.expected_back) is waits


@pytest.mark.parametrize("changes", [False, True])
def test_a_file_whose_key_is_not_to_be_had_is_neither_unknown_nor_waited_for(changes: bool) -> None:
    """`tests/hdfs/test_hdfs_zone.py` has the client say so."""
    said = "File is in an HDFS encryption zone but no KMS provider is configured"
    error = error_of(RuntimeError(said), "put", StorePath.of("hdfs://nn:8020/x"), changes=changes)
    assert type(error) is StoreError
    assert error.outcome == "unchanged"
    assert "hadoop.security.key.provider.path" in (error.next_step or "")


@pytest.mark.parametrize(("operation", "server"), [("status", "NameNode"), ("close", "NameNode or DataNode")])
def test_a_server_that_cannot_be_reached(operation: str, server: str) -> None:
    error = error_of(OSError("Connection refused (os error 111)"), operation, StorePath.of("hdfs://nn:8020/x"))
    assert isinstance(error, StoreUnavailableError)
    assert f"no {server} can be reached" in error.message


DATA = b"x" * 700


async def test_a_file_whose_last_block_no_data_node_reported_yet(jvm: Jvm, tmp_path: Path) -> None:
    """A NameNode that closes files before that (num-committed-allowed) tells readers a length without that block."""
    cluster = await asyncio.to_thread(
        Cluster, jvm, tmp_path, {"dfs.blockreport.incremental.intervalMsec": "1000", "dfs.heartbeat.interval": "1"}
    )
    root = StorePath("hdfs", cluster.authority, "/")
    store = HdfsStore.open_for(root, {})
    try:
        for number in range(3):
            await store.put(root / f"{number}", DATA)
            assert await store.read(root / f"{number}", limit=1000) == DATA
        await store.put(root / "long", DATA)
        with pytest.raises(RecordError):
            await store.read(root / "long", limit=100)
    finally:
        await store.close()
        await asyncio.to_thread(cluster.close)
