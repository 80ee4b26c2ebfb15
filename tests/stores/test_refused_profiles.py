"""What cannot rename is refused by committers that do, before anything is written."""

from __future__ import annotations

import itertools

import pytest

import committer
from committer.errors import UnsupportedError
from committer.stores.memory import PROFILES, MemoryStore
from committer.testing.faults import FaultyStore

_numbers = itertools.count()


@pytest.mark.parametrize("profile", [name for name, can in PROFILES.items() if not can.atomic_file_rename])
@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_manifest_is_refused_with_the_reason(profile: str, delivery: str) -> None:
    space = MemoryStore.space(f"refused-{next(_numbers)}", profile)
    store = FaultyStore(space.store())
    with pytest.raises(UnsupportedError) as caught:
        await committer.open_job(
            str(space.path("out")), committer="manifest", delivery=delivery, storage_options={"store": store}
        )
    for reason in ("'manifest'", "rename a file atomically", "rename without replacing", "write to another store"):
        assert reason in str(caught.value)
    assert caught.value.outcome == "unchanged"
    assert store.calls == []
    assert space.files() == {}
