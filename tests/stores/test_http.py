"""What HTTP stores share: finding the way out."""

from __future__ import annotations

import pytest

from committer.stores.http import _proxy_for


def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    _proxy_for.cache_clear()
    assert _proxy_for("https://acct.dfs.core.windows.net") == "http://proxy:3128"
    for origin in ("https://inside.example", "https://127.0.0.1:8000", "https://localhost"):
        assert _proxy_for(origin) is None
    _proxy_for.cache_clear()
