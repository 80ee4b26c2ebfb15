"""Stores must hold on every event loop."""

from tests.conftest import every_loop as pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
