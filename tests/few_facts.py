"""Limits so low that a handful of old files takes the ways of millions."""

from __future__ import annotations

import pytest

from committer.stages import facts as noted_facts
from committer.stages.decide import decide


def list_in_side_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found facts go to the driver's disk, and a decision names a side file for every two of them."""
    monkeypatch.setattr(decide, "FACTS_IN_DECISION", 0)
    for module in (decide, noted_facts):
        monkeypatch.setattr(module, "FACTS_A_FILE", 2)
    monkeypatch.setattr(noted_facts, "FACTS_IN_MEMORY", 1)
