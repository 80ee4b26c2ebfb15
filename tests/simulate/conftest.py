"""Simulations warn of every abort and cleanup that trouble keeps them from."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster


@pytest.fixture(scope="session")
def _guard(_guard: BlockBuster) -> BlockBuster:
    for function in _guard.functions.values():
        # A virtual loop has no threads: what the engine would do in one, it does at once.
        function.can_block_in("committer/testing/virtual_loop.py", {"run_blocking"})
    return _guard


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No warnings of the engine while it is tormented."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
