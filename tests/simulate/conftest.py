"""Simulations warn of every abort and cleanup that trouble keeps them from."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No warnings of the engine while it is tormented."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
