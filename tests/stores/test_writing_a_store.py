"""The store of docs/writing-a-store.md, as it exists there: installed, found by its scheme, and put to the suite."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import committer
from committer.paths import StorePath
from committer.stores import registry
from committer.stores.memory import MemoryStore
from committer.stores.registry import find_store

_PAGE = Path(__file__).parents[2] / "docs" / "writing-a-store.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


_WRAPPER, _STORE, _TESTS = blocks("python")
_SUITE: dict[str, Any] = {"__name__": __name__}
exec(compile(_TESTS, str(_PAGE), "exec"), _SUITE)
_TestSqliteStore: Any = _SUITE["TestSqliteStore"]


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The page's store as an installed package: its module and the metadata that its pyproject.toml would make."""
    site = tmp_path_factory.mktemp("site-packages")
    (site / "committer_sqlite.py").write_text(_STORE, "utf-8")
    metadata = site / "committer_sqlite-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: committer-sqlite\nVersion: 1.0\n")
    [toml] = blocks("toml")
    [entry] = re.findall(r'^(sqlite) = "(.*)"$', toml, re.MULTILINE)
    (metadata / "entry_points.txt").write_text(f"[committer.stores]\n{entry[0]} = {entry[1]}\n")
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    yield
    sys.path.remove(str(site))
    sys.modules.pop("committer_sqlite", None)
    registry._loaded.pop("sqlite", None)


class TestSqliteStore(_TestSqliteStore):  # type: ignore[misc]
    """Runs here with every test of the suite."""


async def test_the_example_is_what_was_found(tmp_path: Path) -> None:
    store = await find_store(StorePath.of("sqlite://lake/x"), {"database": f"{tmp_path}/lake.db"})
    assert type(store).__module__ == "committer_sqlite"
    assert type(store).__name__ in _STORE


async def test_the_wrapper_counts_every_call() -> None:
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(_WRAPPER, str(_PAGE), "exec"), found)
    store = found["Counting"](MemoryStore.space("wrapped").store())
    path = StorePath.of("memory://wrapped/a")
    await store.put(path, b"1")
    await store.link_file(path, path.parent / "b")
    assert store.calls == 2


def test_the_page_names_what_exists() -> None:
    text = _PAGE.read_text("utf-8")
    assert (_PAGE.parents[1] / "committer/stores/base.py").is_file()
    for name in re.findall(r"`(committer\.testing\.\w+)`", text):
        importlib.import_module(name)
    for name in re.findall(r"`(committer\.open_job)\(", text):
        assert hasattr(committer, name.removeprefix("committer."))
