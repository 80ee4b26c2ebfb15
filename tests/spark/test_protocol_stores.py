"""Spark's own writers through the commit protocol on stores that are servers: results as Spark's own, modes, failures."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from committer import sync
from committer.paths import StorePath
from committer.stores.registry import find_store

from .cluster import Driver
from .protocol_places import PLACES, Place, place_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.xdist_group("protocol stores"),
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK to build the jar with"),
]

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture(scope="module", params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_of(request.param, tmp_path_factory.mktemp("server")) as place:
        yield place


@pytest.fixture(scope="module")
def driver(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    driver = place.driver(tmp_path_factory.mktemp("driver"))
    yield driver
    driver.close()


def rows(place: Place, table: str, column: str = "id") -> dict[str, list[int]]:
    """Sorted values of a column of a table's files in place, by directory; nothing of a job is left there."""
    import pyarrow.parquet as pq

    found: dict[str, list[int]] = {}
    for name, data in place.read(table).items():
        assert not name.startswith("_temporary"), name
        assert "__magic" not in name
        if name.endswith(".parquet"):
            values = pq.ParquetFile(io.BytesIO(data)).read([column]).column(column).to_pylist()
            found.setdefault(name.rpartition("/")[0], []).extend(values)
    if place.name == "s3a":
        assert place.server.uploads() == []
    return {directory: sorted(values) for directory, values in found.items()}


def masked(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files but `_SUCCESS`, which stands, with the job's id masked in their names."""
    found = {_UUID.sub("<uuid>", name): data for name, data in files.items()}
    assert len(found) == len(files)
    assert found.pop("_SUCCESS") is not None
    # A client of Java's may mark directories.
    return {name: data for name, data in found.items() if not name.endswith("/") and name}


GOLDEN = {
    "plain": {"query": "select id from range(20)"},
    "partitioned": {
        "query": "select id, element_at(array('a b', 'c/d:e', 'é%41', null), cast(id % 4 + 1 as int)) p from range(9)",
        "by": ["p"],
    },
    "short": {
        "query": "select id, id % 2 p from range(9)",
        "by": ["p"],
        "file_format": "csv",
        "options": {"maxRecordsPerFile": "2", "compression": "gzip", "header": "true"},
    },
    "empty": {"query": "select id, id p from range(0)", "by": ["p"]},
}

UNFIT = {
    "s3a": [
        ("fs.s3a.committer.magic.track.commits.in.memory.enabled", "true", "only Hadoop's own committer learns"),
        ("fs.s3a.committer.magic.enabled", "false", "has no magic directories"),
    ]
}


class TestStores:
    @pytest.mark.parametrize("case", GOLDEN)
    def test_files_names_and_metrics_are_sparks(self, place: Place, driver: Driver, case: str) -> None:
        told = {}
        for name, sparks_own in (("sparks", True), ("ours", False)):
            dest = f"golden-{case}/{name}"
            told[name] = driver.run("write", dest=place.uri(dest), sparks_own=sparks_own, **GOLDEN[case])
            assert "error" not in told[name]
        expected = masked(place.read(f"golden-{case}/sparks"))
        assert masked(place.read(f"golden-{case}/ours")) == expected
        assert told["ours"]["metrics"] == told["sparks"]["metrics"]
        assert told["ours"]["report"] == [len(expected), sum(map(len, expected.values()))]
        assert sync.validate(place.uri(f"golden-{case}/ours"), storage_options=place.python).ok

    def test_overwrites_replace_what_they_say_and_failures_nothing(self, place: Place, driver: Driver) -> None:
        dest = place.uri("modes/t")

        def write(query: str, mode: str = "overwrite", dynamic: bool = False, fails: int = 0) -> dict[str, object]:
            options = {"partitionOverwriteMode": "dynamic" if dynamic else "static"}
            told: dict[str, object] = driver.run(
                "write", dest=dest, query=query, by=["p"], mode=mode, options=options, fails=fails
            )
            return told

        assert "error" not in write("select id, id % 3 p from range(6)", "error")
        assert "error" not in write("select id, 1 p from range(6, 8)", "append")
        old = {"p=0": [0, 3], "p=1": [1, 4, 6, 7], "p=2": [2, 5]}
        assert rows(place, "modes/t") == old
        before = place.read("modes/t")
        # Two tries a task.
        for dynamic in (False, True):
            told = write("select id, id % 2 p from range(9)", dynamic=dynamic, fails=2)
            assert "all rows of this attempt were handed over" in str(told["error"])
            assert place.read("modes/t") == before
        assert "PATH_ALREADY_EXISTS" in str(write("select 1L id, 1 p", "error")["error"])
        assert "error" not in write("select id, 1 p from range(100, 103)", dynamic=True, fails=1)
        assert rows(place, "modes/t") == {**old, "p=1": [100, 101, 102]}
        # Its own input.
        assert "error" not in write(f"select id, p + 1 p from parquet.`{dest}` where p > 0")
        assert rows(place, "modes/t") == {"p=2": [100, 101, 102], "p=3": [2, 5]}

    def test_an_overwrite_onto_a_file_replaces_it_or_changes_nothing(
        self, place: Place, driver: Driver, tmp_path: Path
    ) -> None:
        """Where an object and a prefix can share a name the object is one more old file; elsewhere it stays."""
        dest = StorePath.of(place.uri("plain/t"))

        async def call(name: str, *arguments: object, **choices: object) -> object:
            store = await find_store(dest, place.python)
            try:
                return await getattr(store, name)(*arguments, **choices)
            finally:
                await store.close()

        asyncio.run(call("make_directory", dest.parent, parents=True))
        asyncio.run(call("put", dest, b"old"))
        write = {"dest": place.uri("plain/t"), "query": "select id from range(3)", "mode": "overwrite"}
        told = driver.run("write", **write)
        if place.name == "gs":
            # The tasks' connector looks above each file.
            assert f"because of existing file: {dest}" in str(told["error"])
            assert asyncio.run(call("read", dest, limit=10)) == b"old"
            other = place.driver(tmp_path, {"fs.gs.create.items.conflict.check.enable": "false"})
            told = other.run("write", **write)
            other.close()
        if place.name in ("s3a", "gs"):
            assert "error" not in told
            assert rows(place, "plain/t") == {"": [0, 1, 2]}
            assert "t" not in place.read("plain")
        else:
            assert "a file exists at" in str(told["error"])
            assert "move the file away" in str(told["error"])
            assert asyncio.run(call("read", dest, limit=10)) == b"old"

    def test_tables(self, place: Place, driver: Driver) -> None:
        where = place.uri("tables/t")
        told = driver.run(
            "sql",
            statements=[
                f"create table t using parquet partitioned by (p) location '{where}' as select id, id % 3 p from range(6)",
                "insert into t select 10L, 2L",
                "insert overwrite t partition (p = 1) select 11L",
                "set spark.sql.sources.partitionOverwriteMode=dynamic",
                "insert overwrite t select 12L, 0L",
                "reset spark.sql.sources.partitionOverwriteMode",
                "select id, p from t order by id",
            ],
        )
        assert told == {"rows": [[2, 2], [5, 2], [10, 2], [11, 1], [12, 0]]}
        assert rows(place, "tables/t") == {"p=0": [12], "p=1": [11], "p=2": [2, 5, 10]}
        assert "error" in driver.run("sql", statements=["insert overwrite t select raise_error('boom'), 1L"])
        assert driver.run("sql", statements=["insert overwrite t select 13L, 1L", "select id, p from t"]) == {
            "rows": [[13, 1]]
        }
        assert rows(place, "tables/t") == {"p=1": [13]}

    def test_a_partition_with_a_location_of_its_own_keeps_its_rows_where_it_cannot_be_replaced(
        self, place: Place, driver: Driver
    ) -> None:
        """S3A sends files to one destination only; elsewhere a root has to name the location."""
        where, elsewhere = place.uri("elsewhere/t"), place.uri("elsewhere/roots/apart")
        driver.run("write", dest=elsewhere, query="select 7L id", sparks_own=True)
        made = [
            f"create table apart using parquet partitioned by (p) location '{where}' as select id, id % 2 p from range(4)",
            f"alter table apart add partition (p = 9) location '{elsewhere}'",
            "select id, p from apart order by id, p",
        ]
        held = {"rows": [[0, 0], [1, 1], [2, 0], [3, 1], [7, 9]]}
        assert driver.run("sql", statements=made) == held
        before = place.read("elsewhere")
        told = {
            "insert overwrite apart partition (p = 9) select 8L": "with a location of its own, is to be replaced",
            "insert overwrite apart select 8L, 9L": "with a location of its own, is to be replaced",
            "insert into apart select 8L, 9L": "no root names it",
        }
        for statement, said in told.items():
            assert said in driver.run("sql", statements=[statement])["error"]
        dynamic = "set spark.sql.sources.partitionOverwriteMode=dynamic"
        roots = f"set committer.absolute_roots={place.uri('elsewhere/roots')}"
        for statement in "insert into apart select 8L, 9L", "insert overwrite apart select 8L, 9L":
            answer = driver.run("sql", statements=[dynamic, roots, statement])
            if place.name == "s3a":
                assert "S3A sends no file there" in answer["error"]
                assert "outcome: unchanged" in answer["error"]
            else:
                assert "error" not in answer
        ended = driver.run(
            "sql",
            statements=[
                "reset spark.sql.sources.partitionOverwriteMode",
                "reset committer.absolute_roots",
                "refresh table apart",
                "select id, p from apart order by id, p",
            ],
        )
        if place.name == "s3a":
            assert ended == held
            assert place.read("elsewhere") == before
        else:
            assert ended == {"rows": [*held["rows"][:4], [8, 9]]}

    def test_an_object_that_configure_was_given(self, place: Place, driver: Driver, tmp_path: Path) -> None:
        """It stays in the driver's process, and says nothing of a local disk."""
        if place.name != "abfs":
            pytest.skip("an account takes a credential")
        name, key = "devstoreaccount1", str(place.python["account_key"])
        told = driver.run(
            "write_with_credential",
            query="select id, 1 p from range(3)",
            dest=place.uri("object/t"),
            local=f"file://{tmp_path}/t",
            name=name,
            key=key,
        )
        assert [one.get("error") for one in told["told"]] == [None, None]
        assert told["asked"] > 0
        assert rows(place, "object/t") == {"": [0, 1, 2]}

    def test_an_attempt_that_is_killed_is_removed(self, place: Place, driver: Driver) -> None:
        """Spark interrupts the thread of such an attempt, and clients of Hadoop's then refuse to do anything."""
        dest = place.uri("killed/t")
        told = driver.run("abort_interrupted", dest=dest)
        assert told["still_interrupted"]
        left = [name for name in place.read("killed/t") if told["name"] in name]
        assert left == []
        if place.name == "s3a":
            assert place.server.uploads() == []
        with sync.attach_job(dest, job_id=told["job_id"], storage_options=place.python) as job:
            job.abort()

    def test_the_function_write_takes_sparks_writer(self, place: Place, driver: Driver) -> None:
        dest, committer = place.uri("called/t"), "magic" if place.name == "s3a" else "manifest"

        def write(query: str, mode: str) -> dict[str, object]:
            told: dict[str, object] = driver.run("call", query=query, dest=dest, mode=mode)
            return told

        written = {"files": 2, "committer": committer, "by_java": True}
        assert write("select id, id % 2 p from range(0, 4, 1, 1)", "error") == written
        assert "TargetExistsError" in str(write("select 5L id, 1L p", "error")["error"])
        assert write("select 5L id, 1L p", "ignore") == {**written, "files": 0}
        assert rows(place, "called/t") == {"p=0": [0, 2], "p=1": [1, 3]}
        assert write("select id, id % 2 p from range(6, 8, 1, 1)", "overwrite") == written
        assert rows(place, "called/t") == {"p=0": [6], "p=1": [7]}

    def test_stock_spark_takes_part_in_a_job_that_python_set_up(self, place: Place, driver: Driver) -> None:
        """Told by the magic committer's own key: Spark draws another `spark.sql.sources.writeJobUUID` for each write."""
        if place.name != "s3a":
            pytest.skip("Hadoop's manifest committer has no key but the one that Spark sets")
        job = sync.open_job(place.uri("told"), job_id="nightly", delivery="listing", storage_options=place.python)
        hadoop = {
            "mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
            "fs.s3a.committer.name": "magic",
            "fs.s3a.committer.uuid": job.spec.unique_id,
            "fs.s3a.committer.abort.pending.uploads": "false",
        }
        spec = job.spec.encode().decode()
        driver.run("write_by_hadoops_committer", spec=spec, hadoop=hadoop, python=place.python)
        job.close()
        found = place.read("told")
        assert json.loads(found.pop("_SUCCESS"))["jobId"] == job.spec.unique_id
        assert {name: data for name, data in found.items() if name} == {
            "python": b"python",
            "part-r-00000": b"stock 0\n",
            "part-r-00001": b"stock 1\n",
        }
        assert place.server.uploads() == []

    def test_what_python_cannot_reach_as_the_jvm_does_is_refused(
        self, place: Place, driver: Driver, tmp_path: Path
    ) -> None:
        """What the JVM writes to must be what Python commits in; nothing is left in either place."""
        dest = place.uri("refused/t")

        def write(option: str, value: str) -> str:
            told = driver.run("write", dest=dest, query="select 1L id", options={f"committer.storage.{option}": value})
            assert "outcome: unchanged" in told["error"]
            assert place.read("refused") == {}
            return str(told["error"])

        endpoint = "endpoint_url" if place.name == "s3a" else "endpoint"
        if endpoint in place.python:
            with place_of(place.name, tmp_path) as other:
                told = write(endpoint, str(other.python[endpoint]))
                assert "this JVM cannot see it" in told
                assert "spark.hadoop.committer.storage." in told
                assert other.read("refused") == {}
        assert "knows no option 'nonsense'" in write("nonsense", "1")

    def test_a_client_that_tells_nothing_of_what_it_sends_is_refused(self, place: Place, driver: Driver) -> None:
        for key, value, said in UNFIT.get(place.name, ()):
            options = {key: value, f"fs.{place.name}.impl.disable.cache": "true"}
            told = driver.run("write", dest=place.uri("unfit/t"), query="select 1L id", options=options)
            assert said in told["error"]
            assert "outcome: unchanged" in told["error"]
        assert place.read("unfit") == {}

    def test_drivers_without_python_and_one_that_dies_in_its_commit(self, place: Place, tmp_path: Path) -> None:
        """The JVM hands the session's keys to the process that it starts. A driver that dies is finished by recover."""
        dest, query = place.uri("other/t"), "select id, id % 2 p from range({}, {}, 1, 2)"
        driver = place.driver(tmp_path)
        try:
            when = "in the middle, by uploads" if place.name == "s3a" else "in the middle"
            driver.run("write", dest=dest, query=query.format(0, 8), by=["p"])
            driver.start("write", dest=dest, query=query.format(8, 12), by=["p"], mode="overwrite", killed=when)
            assert driver.process.wait(120) == -signal.SIGKILL
        finally:
            driver.close()
        (job,) = sync.list_jobs(dest, storage_options=place.python)
        assert job.state == "committing"
        assert sync.recover(dest, job.job_id, storage_options=place.python).files_committed == 4
        assert rows(place, "other/t") == {"p=0": [8, 10], "p=1": [9, 11]}
        driver = place.driver(tmp_path / "another")
        try:
            driver.run("without_python")
            told = driver.run("write", dest=dest, query=query.format(20, 24), by=["p"], mode="overwrite")
            assert "error" not in told
            before = place.read("other/t")
            told = driver.run(
                "write", dest=dest, query="select raise_error('boom') id, 1 p", by=["p"], mode="overwrite"
            )
            assert "boom" in told["error"]
            assert place.read("other/t") == before
        finally:
            driver.close()
        assert rows(place, "other/t") == {"p=0": [20, 22], "p=1": [21, 23]}
