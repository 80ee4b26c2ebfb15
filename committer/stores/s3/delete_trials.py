"""Trials of how a service deletes; each says what is wrong, nothing where it is as S3 does it."""

from __future__ import annotations

from contextlib import suppress

from committer.errors import StoreNotFoundError, StorePreconditionError
from committer.stores.helpers import status_or_none
from committer.stores.s3.deletes import Deletes
from committer.stores.s3.trial_bench import NO_ETAG, TrialBench


async def deletes_on_condition(bench: TrialBench) -> str:
    """Whether a delete on a condition deletes the file that meets it, and no other."""
    path = bench.directory / "deleted"
    identity = (await bench.store.put(path, b"data")).identity
    answer = await bench.wire.send("trials", "DELETE", path, (), {"if-match": NO_ETAG})
    if await status_or_none(bench.store, path) is None:
        return "a delete deletes what it was told to spare"
    if answer.status != 412:
        return f"a delete on a condition is answered with {answer.status}"
    await bench.wire.done("trials", "DELETE", path, (), {"if-match": f'"{identity}"'})
    return "" if await status_or_none(bench.store, path) is None else "a file that meets the condition is not deleted"


async def deletes_many(bench: TrialBench) -> str:
    """Whether one call deletes many files."""
    paths = [bench.directory / "many" / str(number) for number in range(2)]
    for path in paths:
        await bench.store.put(path, b"")
    failed = await Deletes(bench.wire).delete_at_once(dict.fromkeys(paths))
    for error in failed.values():
        raise error
    with suppress(StoreNotFoundError):
        _left = [one async for one in bench.store.list(paths[0].parent)]
        return "files that were said to be deleted stand" if _left else ""
    return ""


async def deletes_many_on_condition(bench: TrialBench) -> str:
    """Whether a call for many files deletes those that meet their conditions, and no others."""
    spared, meant = (bench.directory / "many-on-condition" / name for name in ("spared", "meant"))
    identities = [str((await bench.store.put(path, path.name.encode())).identity) for path in (spared, meant)]
    deletes = Deletes(bench.wire)
    refused = await deletes.delete_at_once({spared: identities[1], meant: identities[1]})
    if await status_or_none(bench.store, spared) is None:
        deletes.saw_condition_ignored()
        return "a call for many files deletes what it was told to spare"
    if not isinstance(refused.get(spared), StorePreconditionError):
        return "a call for many files says not that it spared one"
    left = await status_or_none(bench.store, meant)
    return "" if left is None and meant not in refused else "a file that meets the condition is not deleted"
