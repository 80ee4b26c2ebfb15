"""``publish="spark"`` on a cluster of two workers whose executors are killed, or stand still, while they publish."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from committer import sync

from .cluster import Driver, standalone_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.xdist_group("publishing cluster"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2, and /proc to find the processes to kill"),
]

FILES = 240
SCRIPT = Path(__file__).with_name("publishing_driver.py")
needs_a_jdk = pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK to build the jar with")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    scratch = tmp_path_factory.mktemp("publishing")
    with standalone_cluster(scratch) as master:
        driver = Driver(master, scratch / "driver", SCRIPT)
        yield driver
        driver.close()
    shutil.rmtree(scratch)


def rows(dest: Path) -> list[int]:
    found: list[int] = []
    for path in dest.glob("d=*/*"):
        if path.suffix == ".txt":
            found += [int(line) for line in path.read_text().splitlines()]
        elif path.suffix == ".parquet":
            import pyarrow.parquet as pq

            found += pq.ParquetFile(path).read(["id"]).column("id").to_pylist()
    return sorted(found)


@pytest.mark.parametrize("way", ["messages", pytest.param("own writers", marks=needs_a_jdk)])
@pytest.mark.parametrize("happening", ["kill_an_executor", "kill_workers", "stop_an_executor"])
def test_executors_fail_while_they_publish(driver: Driver, tmp_path: Path, way: str, happening: str) -> None:
    """Every row is there once: chunks are run again, or twice, late ones change nothing, and the driver does the rest."""
    dest = tmp_path / "t"
    told = driver.run("publish", way=way, happening=happening, dest=str(dest))
    assert "failed" not in told, told
    assert told["chunks"] > 1
    assert FILES // 10 < told["published before"] < FILES
    assert rows(dest) == list(range(FILES))
    assert told["reported"] == FILES == len(list(dest.glob("d=*/*")))
    assert sync.validate(dest).ok
    assert not (dest / "_temporary").exists()
    if happening == "kill_an_executor":
        assert told["lost executors"] >= 1
    if happening == "stop_an_executor":
        assert told["copies"] >= 1
