"""What HTTP stores share: finding the way out."""

from __future__ import annotations

import asyncio
import traceback

import pytest

from committer.errors import InvalidPathError, StoreUnavailableError
from committer.paths import StorePath
from committer.stores.http import Answer, _proxy_for
from committer.stores.registry import open_store

pytestmark = pytest.mark.every_loop

ADLS = StorePath("abfss", "container@account.dfs.core.windows.net", "/d/file")
S3 = StorePath("s3", "bucket", "/d/file")
KEYS = {"abfss": {"account_key": "a2V5"}, "s3": {"access_key_id": "id", "secret_access_key": "key", "region": "here-1"}}


def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    _proxy_for.cache_clear()
    assert _proxy_for("https://acct.dfs.core.windows.net") == "http://proxy:3128"
    for origin in ("https://inside.example", "https://127.0.0.1:8000", "https://localhost"):
        assert _proxy_for(origin) is None
    _proxy_for.cache_clear()


@pytest.mark.parametrize("path", [ADLS, S3], ids=["adls", "s3"])
async def test_a_proxy_s_password_shows_nowhere(monkeypatch: pytest.MonkeyPatch, path: StorePath) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:canary@127.0.0.1:{port}")
        _proxy_for.cache_clear()
        store = open_store(path, KEYS[path.scheme])
        try:
            with pytest.raises(StoreUnavailableError, match="407") as caught:
                await store.put(path, b"1")
        finally:
            await store.close()
            _proxy_for.cache_clear()
        assert "canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("path", [ADLS, S3], ids=["adls", "s3"])
async def test_names_that_no_url_can_hold(path: StorePath) -> None:
    store = open_store(path, KEYS[path.scheme])
    for name in ("nul\0", "half a pair \ud800", "\udcff" * 1000, "x" * 1025):
        with pytest.raises(InvalidPathError):
            await store.status(StorePath(path.scheme, path.authority, f"{path.parent.path}/{name}"))
    await store.close()


def test_an_answer_shows_no_content() -> None:
    assert "secret" not in repr(Answer(200, {"x-token": "secret"}, b"secret"))
