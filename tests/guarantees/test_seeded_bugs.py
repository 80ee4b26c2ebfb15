"""The sweeps are put to the test themselves: with a bug planted in the engine they must fail, without it they must not.

More bugs, each of which the simulator must find, are planted by tests/simulate/mutants.py.
"""

from __future__ import annotations

import pytest

from committer.stages.publish.publish import PublishFiles
from tests.guarantees.cluster import Plan
from tests.guarantees.conftest import Tally
from tests.guarantees.sweeps import memory, sweep
from tests.guarantees.test_faults import then_recovered


def plant_blind_retry(patch: pytest.MonkeyPatch) -> None:
    """A rename whose answer was lost is sent again without looking; that its source is gone by now is an error."""

    async def settle(self, file, source, target, error):
        await self.context.store.rename_file(source, target, identity=file.identity)

    patch.setattr(PublishFiles, "_settle", settle)


async def test_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    async def sweep_all() -> None:
        await sweep(memory("local"), Plan(), ("lost",), then_recovered, Tally(), commit_only=True)

    await sweep_all()
    plant_blind_retry(monkeypatch)
    with pytest.raises(AssertionError, match="nothing is there"):
        await sweep_all()
