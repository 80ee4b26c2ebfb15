"""From a path's scheme to its store."""

from __future__ import annotations

import itertools
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import pytest

from committer.errors import ConfigurationError, UnsupportedError
from committer.paths import StorePath
from committer.stores import registry
from committer.stores.base import Store
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.stores.registry import find_store, open_store, register_store, unregister_store
from committer.testing.faults import FaultyStore

_numbers = itertools.count()
ROOT = Path(__file__).parent.parent.parent


def test_built_in_schemes() -> None:
    assert isinstance(open_store(StorePath.of("/tmp")), LocalStore)
    assert isinstance(open_store(StorePath.of("memory://registry/x")), MemoryStore)
    flat = open_store(StorePath.of("memory://registry-flat/x"), {"profile": "gcs", "http_session": object()})
    assert not flat.capabilities.directories


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'profile'"):
        open_store(StorePath.of("memory://registry/x"), {"profil": "gcs"})


@pytest.mark.parametrize(
    ("uri", "instead"),
    [
        ("s3n://b/x", "s3a://BUCKET/PATH"),
        ("gcs://b/x", "gs://BUCKET/PATH"),
        (
            "https://account.blob.core.windows.net/c/x",
            "s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
        ),
        ("dbfs:/mnt/x", "the path that it is mounted from, s3://… or abfss://…: dbutils.fs.mounts() shows it"),
        (
            "azure://c/x",
            "az://CONTAINER/PATH, or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH with hierarchical namespace",
        ),
    ],
)
async def test_another_name_of_a_store(uri: str, instead: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        await find_store(StorePath.of(uri))
    assert caught.value.next_step == f"write {instead}"


async def test_a_store_of_ones_own_answers_to_a_name_before_the_built_in_one() -> None:
    register_store("oss", lambda path, options: MemoryStore("registry-oss"))
    try:
        assert isinstance(await find_store(StorePath.of("oss://bucket/table")), MemoryStore)
    finally:
        unregister_store("oss")


async def test_an_unknown_scheme_tells_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match="ftp:") as caught:
        await find_store(StorePath.of("ftp://host/x"))
    assert (
        "stores for abfs:, abfss:, az:, file:, gs:, hdfs:, memory:, oss:, s3:, s3a:, wasb:, wasbs: paths"
        in caught.value.next_step
    )


def test_the_extra_of_spark_connect_brings_what_its_client_imports() -> None:
    """pandas too, which a client of Connect imports and classic Spark does not need."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    asked = {re.split(r"[>=<;]", requirement)[0] for requirement in extras["connect"]}
    assert asked == {"pyarrow", "pyspark[connect]"}
    try:
        of_spark = metadata.requires("pyspark") or []
    except metadata.PackageNotFoundError:
        pytest.skip("pyspark is not installed")
    brought = {re.split(r"[>=<; \[]", one)[0] for one in of_spark if re.search(r"extra == .connect\b", one)}
    assert {"pandas", "grpcio", "grpcio-status", "googleapis-common-protos"} <= brought


def test_a_live_store() -> None:
    store = FaultyStore(MemoryStore("registry-live"))
    path = StorePath.of("memory://registry-live/x")
    assert open_store(path, {"store": store}) is store
    assert open_store(path, {"store": store, "http_session": None}) is store
    for options in ({"store": store, "profile": "gcs"}, {"store": "memory"}, {"store": None}):
        with pytest.raises(ConfigurationError):
            open_store(path, options)
    with pytest.raises(ConfigurationError):
        open_store(StorePath.of("/tmp"), {"store": store})


def test_registering() -> None:
    seen: list[tuple[StorePath, Mapping[str, object]]] = []

    def factory(path: StorePath, options: Mapping[str, object]) -> Store:
        seen.append((path, options))
        return MemoryStore("registry-mine")

    path = StorePath.of("mine://x/y")
    register_store("MINE", factory)
    try:
        assert isinstance(open_store(path, {"a": 1}), MemoryStore)
        assert seen == [(path, {"a": 1})]
    finally:
        unregister_store("mine")
    with pytest.raises(UnsupportedError):
        open_store(path)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A distribution on the import path with a store, one that cannot be imported, and one for ``file``."""
    module = f"installed_store_{next(_numbers)}"
    (tmp_path / f"{module}.py").write_text(
        "from committer.stores.memory import MemoryStore\n"
        "class Installed(MemoryStore):\n"
        "    @classmethod\n"
        "    def open_for(cls, path, options):\n"
        "        return cls('installed')\n"
    )
    metadata = tmp_path / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[committer.stores]\nthird = {module}:Installed\nbroken = {module}_missing:Store\nfile = {module}:Installed\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_loaded", {})
    yield module
    sys.modules.pop(module, None)


async def test_entry_points_are_found_without_blocking(installed: str) -> None:
    store = await find_store(StorePath.of("third://x/y"))
    assert type(store).__name__ == "Installed"
    assert open_store(StorePath.of("third://x/y")) is not store, "known now: no need to look again"


async def test_built_in_schemes_cannot_be_taken_over(installed: str) -> None:
    assert type(await find_store(StorePath.of("/tmp"))) is LocalStore


async def test_a_store_whose_import_fails(installed: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot be imported") as caught:
        await find_store(StorePath.of("broken://x/y"))
    assert f"install what {installed}_missing imports" in caught.value.next_step


@pytest.mark.parametrize(
    "uri", ["s3://b/x", "gs://b/x", "abfss://c@a.dfs.core.windows.net/x", "az://c@a.blob.core.windows.net/x"]
)
def test_a_session_under_two_spellings_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="HTTP_SESSION and http_session exclude"):
        open_store(StorePath.of(uri), {"HTTP_SESSION": object(), "http_session": object()})


def test_a_session_counts_under_any_spelling() -> None:
    path, session = StorePath.of("s3://b/x"), object()
    for given in ({"http_session": None, "HTTP_SESSION": session}, {"spark.hadoop.http_session": session}):
        assert open_store(path, given).storage_options.take({**given}, "http_session") is session  # type: ignore[attr-defined]
