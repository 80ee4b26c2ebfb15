"""What HTTP stores share: reading how long to wait, and finding the way out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from multidict import CIMultiDict

from committer.flow.runtime import SystemRuntime, use_runtime
from committer.stores.http import _proxy_for, retry_after_s

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class _At(SystemRuntime):
    def now(self) -> datetime:
        return NOW


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3),
        ({"retry-after": " 0 "}, 0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"x-ms-retry-after-ms": "250", "Retry-After": "3"}, 0.25),
        ({"retry-after-ms": "40"}, 0.04),
        ({"x-ms-retry-after-ms": "soon", "Retry-After": "3"}, 3),
        ({"Retry-After": format_datetime(NOW + timedelta(seconds=90), usegmt=True)}, 90),
        ({"Retry-After": format_datetime(NOW - timedelta(seconds=90), usegmt=True)}, 0),
        ({"Retry-After": "Sat, 21 Nov 2026 12:00:30 -0000"}, 30),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "٣"}, None),
        ({"Retry-After": ""}, None),
    ],
)
def test_how_long_an_answer_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    with use_runtime(_At()):
        assert retry_after_s(CIMultiDict(headers)) == seconds


def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    _proxy_for.cache_clear()
    assert _proxy_for("https://acct.dfs.core.windows.net") == "http://proxy:3128"
    for origin in ("https://inside.example", "https://127.0.0.1:8000", "https://localhost"):
        assert _proxy_for(origin) is None
    _proxy_for.cache_clear()
