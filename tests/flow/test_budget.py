"""No more is held at once than the budget says, and no claim is passed over."""

from __future__ import annotations

import asyncio

import pytest

from committer.flow.workers import Budget
from tests.flow.grants import turns

pytestmark = pytest.mark.every_loop


class Holders:
    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.order: list[int] = []
        self.ends: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, number: int, amount: int) -> None:
        self.ends[number] = asyncio.Event()
        self.tasks[number] = asyncio.create_task(self._hold(number, amount))

    async def _hold(self, number: int, amount: int) -> None:
        async with self.budget.hold(amount):
            self.order.append(number)
            await self.ends[number].wait()


async def test_what_does_not_fit_waits_and_those_behind_it_too() -> None:
    holders = Holders(Budget(10))
    for number, amount in enumerate((6, 6, 1)):
        holders.start(number, amount)
    await turns()
    assert holders.order == [0]
    holders.ends[0].set()
    await turns()
    assert holders.order == [0, 1, 2]
    assert holders.budget.held == 7
    for number in (1, 2):
        holders.ends[number].set()
    await asyncio.gather(*holders.tasks.values())
    assert holders.budget.held == 0


async def test_more_than_all_of_it_is_given_alone() -> None:
    holders = Holders(Budget(10))
    holders.start(0, 1)
    holders.start(1, 100)
    await turns()
    assert holders.order == [0]
    holders.ends[0].set()
    await turns()
    assert holders.order == [0, 1]
    holders.ends[1].set()
    await asyncio.gather(*holders.tasks.values())


@pytest.mark.parametrize("moment", ["while it waits", "when its turn has come"])
async def test_who_is_cancelled_gives_back_what_it_had(moment: str) -> None:
    holders = Holders(Budget(10))
    for number, amount in enumerate((10, 10, 4)):
        holders.start(number, amount)
    await turns()
    if moment == "when its turn has come":
        holders.ends[0].set()
        await asyncio.sleep(0)
    holders.tasks[1].cancel()
    holders.ends[0].set()
    await turns()
    assert holders.order[-1] == 2
    assert holders.budget.held == 4
    holders.ends[2].set()
    await asyncio.gather(*holders.tasks.values(), return_exceptions=True)
    assert holders.budget.held == 0


async def test_a_failing_block_gives_back() -> None:
    budget = Budget(1)
    with pytest.raises(KeyError):
        async with budget.hold(1):
            raise KeyError
    assert budget.held == 0
