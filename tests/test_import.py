"""What importing the package costs, what it loads, and which names it has."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import committer
from committer import sync

ROOT = Path(__file__).parent.parent
VENDORS = (
    "aiohttp aiobotocore azure boto3 botocore cyclopts gcloud google hdfs_native numpy pandas pyarrow pyspark rich"
)

_TIMED = """
import sys, time
start = time.process_time()
import committer
print(time.process_time() - start)
"""

_LOADED = """
import sys
import committer
{use}
print(" ".join(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


def fresh(program: str) -> str:
    """Runs a program in a new interpreter that has the package installed and nothing imported."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def test_importing_takes_less_than_100_ms_of_cpu() -> None:
    assert min(float(fresh(_TIMED)) for _ in range(5)) < 0.1


@pytest.mark.parametrize(
    "use",
    ["", "for name in committer.__all__: getattr(committer, name)", "import committer.stores.local", "committer.spark"],
)
def test_no_vendor_library_is_loaded(use: str) -> None:
    loaded = set(fresh(_LOADED.format(use=use)).split())
    assert "committer" in loaded
    assert not loaded & set(VENDORS.split())


@pytest.mark.parametrize("name", ["spark.write", "spark.foreach_partition", "sync.open_job", "errors.JobError"])
def test_importing_the_package_is_all_that_a_user_needs(name: str) -> None:
    if name.startswith("spark"):
        pytest.importorskip("pyspark")
        pytest.importorskip("pyarrow")
    assert fresh(f"import committer; print(callable(committer.{name}))") == "True\n"


def test_the_public_names() -> None:
    assert len(committer.__all__) <= 29
    assert list(committer.__all__) == sorted(committer.__all__)
    for name in committer.__all__:
        value = getattr(committer, name)
        assert value is getattr(committer, name)
    assert dir(committer) == sorted([*committer.__all__, "errors", "spark", "sync"])
    assert dir(sync) == sync.__all__
    namespace: dict[str, object] = {}
    exec("from committer import *", namespace)
    assert set(committer.__all__) <= set(namespace)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = committer.colour  # type: ignore[attr-defined]


def test_the_version_is_the_distributions() -> None:
    projects = [
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"] for folder in ("", "testing")
    ]
    assert [project["version"] for project in projects] == [committer.__version__] * 2
    assert f"lake-committer=={committer.__version__}" in projects[1]["dependencies"]
