"""A fault at every request that a job makes to an emulated cloud store, one run after the other; then `recover` ends it.

What test_faults.py does at the store's calls, at the requests that they are made of.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from committer.flow.runtime import use_runtime
from committer_testing.emulators.faults import Conduct, Fault
from committer_testing.simulate.worlds import World
from tests.guarantees.cluster import Cluster, Impatient, Plan
from tests.guarantees.conftest import Tally
from tests.guarantees.outcomes import drive, end


@dataclass(frozen=True)
class Served:
    """An emulated store.

    Attributes:
        conduct: Its faults and its log.
        world: Makes a new destination there.
        rename: What its log calls a rename, and the status of one that was done.
        faults: What can go wrong, by its name.
        only: Which operations a fault can hit, where not all.
    """

    conduct: Conduct
    world: Callable[[], World]
    rename: tuple[str, int]
    faults: Mapping[str, Callable[[], Fault]]
    only: Mapping[str, set[str]]


@asynccontextmanager
async def running(served: Served, plan: Plan, *faults: Fault) -> AsyncIterator[Cluster]:
    """A cluster on a new destination."""
    served.conduct.faults[:] = faults
    served.conduct.log.clear()
    # No call of a store is hit; that there is trouble lets a directory stay.
    cluster = Cluster(served.world(), plan, trouble="lost" if faults else None)
    with use_runtime(Impatient(1)):
        try:
            yield cluster
        finally:
            await cluster.close()


@dataclass
class Requests:
    """Those of a job that meets no trouble: what each is, and which is the first of the commit."""

    operations: list[str]
    commit_began: int


async def undisturbed(served: Served, plan: Plan) -> Requests:
    began = 0
    async with running(served, plan) as cluster:
        named = cluster.named

        def note() -> object:
            nonlocal began
            began = len(served.conduct.log)
            return named()

        cluster.named = note  # type: ignore[method-assign,assignment]
        await cluster.run()
        cluster.raise_broken()
        cluster.checker.end("committed", neat=True)
        return Requests([one.operation for one in served.conduct.log], began)


def renamed_again(served: Served) -> set[str]:
    """Returns the task output whose rename to the destination a driver sent again after it was done."""
    done: set[str] = set()
    again: set[str] = set()
    for one in served.conduct.log:
        # A task attempt's directory has a name of its own: to seal it twice does no harm.
        published = "/attempt_" in one.source and "/_temporary/" not in one.path
        if one.operation == served.rename[0] and published:
            if one.source in done:
                again.add(one.source)
            if one.status == served.rename[1] or any(kind.endswith("-after") for kind in one.faults):
                done.add(one.source)
    return again


async def sweep(served: Served, plan: Plan, trouble: str, tally: Tally, *, commit_only: bool = False) -> None:
    """Runs the job anew for a fault at every request of this run's share.

    Raises:
        AssertionError: It names the first runs that ended wrong.
    """
    requests = await undisturbed(served, plan)
    numbers: Sequence[int] = range(requests.commit_began if commit_only else 0, len(requests.operations))
    if trouble in served.only:
        numbers = [number for number in numbers if requests.operations[number] in served.only[trouble]]
    assert numbers, f"{trouble} fits no request"
    numbers = tally.share(numbers)
    tally.calls += len(numbers)
    wrong: list[str] = []
    for number in numbers:
        fault = served.faults[trouble]()
        fault.skip = number
        async with running(served, plan, fault) as cluster:
            try:
                error = await drive(cluster)
                assert fault.hits, "the job made fewer requests"
                word = await end(cluster, commit=number % 2 == 0)
                assert error is not None or word == "committed"
                assert not renamed_again(served)
                tally.note(word)
            except Exception as error:
                hit = next((f"{one.operation} of {one.path}" for one in served.conduct.log if one.faults), "nothing")
                wrong.append(f"{trouble} at request {number}, {hit}\n    {type(error).__name__}: {error}")
    assert not wrong, f"{len(wrong)} of {len(numbers)} runs ended wrong, the first:\n" + "\n".join(wrong[:5])
