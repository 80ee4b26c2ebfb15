"""Async tests of this folder run on every event loop: asyncio's, uvloop's, and (slow, 3.12+) with eager tasks."""

from __future__ import annotations

from tests.conftest import every_loop as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
