"""Places that functional tests run on, and the disk of a machine whose tasks stage their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from committer import CommitterConfig
from tests.places import flat, memory, place

__all__ = ["Make", "config", "disk", "flat", "memory", "place"]

Make = Callable[..., CommitterConfig]


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """The directory for staged files."""
    return tmp_path / "disk"


@pytest.fixture
def config(disk: Path) -> Make:
    """Makes a configuration whose tasks stage their files on the disk."""

    def make(**choices: object) -> CommitterConfig:
        return CommitterConfig(staging_directories=(str(disk),), **choices)  # type: ignore[arg-type]

    return make
