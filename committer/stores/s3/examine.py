"""Probe of what a commit needs of a service with S3's protocol, and its trials for ``committer doctor``."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Literal, NamedTuple, TypeAlias

from committer.errors import (
    CommitterError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StorePermissionError,
    StorePreconditionError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.flow.together import both
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.examination import Finding, Verdict
from committer.stores.helpers import status_or_none
from committer.stores.s3.deletes import Deletes
from committer.stores.s3.errors import DIFFERS, SERVICES, TRIED, error_of
from committer.stores.s3.wire import STAMP_HEADER, S3Wire
from committer.stores.s3.xml import checksum, element_in, header_of
from committer.stores.uploads import UPLOADS, SupportsUploads, UploadPart

_STAMP: Final = "committer-trial"
_NO_ETAG: Final = "00000000000000000000000000000000"
"""Etag that no file has."""


class Probed(NamedTuple):
    """Abilities that a job can do without, as tried: conditions of a delete, and of a delete of many files."""

    spares_one: bool
    spares_of_many: bool


async def probe(store: Store, wire: S3Wire, directory: StorePath) -> Probed:
    """Tries each condition on a probe file and deletes it; raises `UnsupportedError` for what every job needs."""
    path = directory / f".probe-{current_runtime().nonce()}"
    uploads, can = UPLOADS.required(store, "probe", path), store.capabilities

    async def list_uploads() -> None:
        try:
            # A service may list a pending upload late; one without the call refuses it.
            _listed = [one async for one in uploads.list_uploads(directory)]
        except UnsupportedError:
            raise _unsupported("does not list the uploads that are pending", path) from None

    try:
        await store.put(path, b"probe", exclusive=True)
        with suppress(StoreExistsError):
            await store.put(path, b"other", exclusive=True)
            raise _unsupported("lets a put replace what it was told not to replace (If-None-Match: *)", path)
        # The first changes only the probe file, the second only lists uploads.
        spares_of_many, _listed = await both(_spares_of_many(store, wire, path), list_uploads())
        if not spares_of_many:
            # The call may have deleted it, and the next trials need an existing file.
            await store.put(path, b"probe")
        await _completes(store, uploads, path)
        if can.conditional_replace and not await _spares(wire, "PUT", path):
            raise _unsupported("has no put that replaces one file and no other (If-Match)", path)
        return Probed(can.conditional_delete and await _spares(wire, "DELETE", path), spares_of_many)
    finally:
        with suppress(StoreError):
            await wire.done("probe", "DELETE", path)


async def _spares(wire: S3Wire, method: Literal["PUT", "DELETE"], path: StorePath) -> bool:
    """Returns True if the service refuses a call whose condition is false."""
    answer = await wire.send("probe", method, path, (), {"if-match": f'"{_NO_ETAG}"'})
    if answer.status in (401, 403):
        raise error_of(answer, "probe", path)
    return answer.status == 412


async def _spares_of_many(store: Store, wire: S3Wire, path: StorePath) -> bool:
    """Returns True if a call for many files spares the file, whose condition is false, and says so.

    moto 5.2 ignores these conditions. No job needs them: any other failure counts as False, and a service that
    ignored them once is not asked again.
    """
    deletes = Deletes(wire)
    if deletes.ignores_conditions or not store.capabilities.conditional_delete:
        return False
    try:
        refused = await deletes.delete_at_once({path: _NO_ETAG})
    except CommitterError:
        return False
    if path not in refused:
        deletes.saw_condition_ignored()
    return isinstance(refused.get(path), StorePreconditionError)


async def _completes(store: Store, uploads: SupportsUploads, path: StorePath) -> None:
    """Completes an upload over the file: first on a false condition, then without one, which must keep the stamp."""
    upload_id = await uploads.create_upload(path, stamp=_STAMP)
    try:
        part = await uploads.put_part(path, upload_id, 1, b"stamped")
        try:
            await uploads.complete_upload(path, upload_id, [part], exclusive=True)
        except StoreExistsError:
            await uploads.complete_upload(path, upload_id, [part])
        else:
            raise _unsupported("lets a completion replace what it was told not to replace (If-None-Match: *)", path)
        found = await store.status(path)
        if (found.stamp, found.size) != (_STAMP, 7):
            raise _unsupported("does not keep the metadata that an upload was created with", path)
    except BaseException:
        with suppress(StoreError):
            await uploads.abort_upload(path, upload_id)
        raise


def _unsupported(what: str, path: StorePath) -> UnsupportedError:
    return UnsupportedError(
        f"this service {what}, so no job is safe there", operation="probe", path=path.parent, next_step=SERVICES
    )


class Trials:
    """Trials of one service in an empty directory, which the caller removes; each object runs once."""

    def __init__(self, store: Store, wire: S3Wire, directory: StorePath) -> None:
        self.store = store
        self.wire = wire
        self.directory = directory
        self.uploads: SupportsUploads = UPLOADS.required(store, "trials", directory)
        self._begun: list[tuple[StorePath, str]] = []

    async def begin(self, path: StorePath, headers: dict[str, str] | None = None) -> str:
        """Begins a stamped upload, which `end` aborts."""
        sent = {STAMP_HEADER: _STAMP, **(headers or {})}
        answer = await self.wire.done("trials", "POST", path, (("uploads", ""),), sent)
        upload_id = element_in(answer.body, "UploadId")
        self._begun.append((path, upload_id))
        return upload_id

    async def end(self) -> None:
        """Aborts every upload of `begin`."""
        for path, upload_id in self._begun:
            with suppress(StoreError):
                await self.uploads.abort_upload(path, upload_id)

    async def run(self) -> list[Finding]:
        """Tries everything that the service was not declared to lack, some 100 calls, and aborts all uploads."""
        can = self.store.capabilities
        lacking = {"conditional delete", "conditional batch delete"} if can.deletes_by_name else set()
        if not can.conditional_replace:
            lacking.add("conditional replace")
        try:
            return [await self._try(trial) for trial in TRIALS if trial.name not in lacking]
        finally:
            await self.end()

    async def _try(self, trial: Trial) -> Finding:
        try:
            said = await trial.call(self)
        except StorePermissionError as error:
            return Finding(trial.name, "skipped", error.message, error.next_step)
        except CommitterError as error:
            if trial.needed:
                return Finding(trial.name, "failed", f"{error.message}: {REFUSED}", TRIED)
            said = error.message
        if not said:
            return Finding(trial.name, "ok", trial.holds)
        step = TRIED if trial.verdict == "failed" else DIFFERS
        return Finding(trial.name, trial.verdict, f"{said}: {trial.without}", step)


REFUSED: Final = "every job is refused when it is set up"
_AT_ONCE: Final = 8


Call: TypeAlias = Callable[[Trials], Awaitable[str]]
"""Trial of one ability; returns what is wrong, or an empty text."""


class Trial(NamedTuple):
    """Trial of an ability.

    Attributes:
        holds: Text for a service with the ability.
        without: What this library does without it.
        needed: Whether jobs are refused if the service does not know the call.
        steady: Whether each trial has the same result; else a success proves little.
    """

    name: str
    call: Call
    holds: str
    without: str
    verdict: Verdict
    needed: bool
    steady: bool


TRIALS: Final[list[Trial]] = []
"""All trials in order; the documentation page on S3 shows their results for known services."""


def _trial(
    name: str, holds: str, without: str, verdict: Verdict = "warning", *, needed: bool = False, steady: bool = True
) -> Callable[[Call], Call]:
    """Adds the decorated function to `TRIALS`."""

    def add(call: Call) -> Call:
        TRIALS.append(Trial(name, call, holds, without, verdict, needed, steady))
        return call

    return add


@_trial("conditional put", "a put with If-None-Match: * spares what is there", REFUSED, "failed", needed=True)
async def _puts_on_condition(trials: Trials) -> str:
    path = trials.directory / "put"
    await trials.store.put(path, b"first", exclusive=True)
    with suppress(StoreExistsError):
        await trials.store.put(path, b"second", exclusive=True)
        return "a put replaces what it was told to spare"
    return "" if await trials.store.read(path, limit=9) == b"first" else "a put that is refused replaces the file"


@_trial(
    "conditional completion",
    "a completion with If-None-Match: * spares what is there, and its upload stays",
    REFUSED,
    "failed",
    needed=True,
)
async def _completes_on_condition(trials: Trials) -> str:
    path = trials.directory / "completed"
    await trials.store.put(path, b"first")
    upload_id = await trials.begin(path)
    part = await trials.uploads.put_part(path, upload_id, 1, b"second")
    with suppress(StoreExistsError):
        await trials.uploads.complete_upload(path, upload_id, [part], exclusive=True)
        return "a completion replaces what it was told to spare"
    if await trials.store.read(path, limit=9) != b"first":
        return "a completion that is refused replaces the file"
    await trials.uploads.complete_upload(path, upload_id, [part])
    return "" if await trials.store.read(path, limit=9) == b"second" else "a refused completion spoils the upload"


@_trial(
    "puts at once",
    "one of eight such puts at the same moment succeeds",
    "two drivers can decide one job: no job is safe there",
    "failed",
    steady=False,
)
async def _puts_at_once(trials: Trials) -> str:
    path = trials.directory / "put-at-once"

    async def put(number: int) -> None:
        await trials.store.put(path, b"%d" % number, exclusive=True)

    return _said(await _winners(put), "puts")


@_trial(
    "completions at once",
    "one of eight such completions at the same moment succeeds",
    "two jobs that write one name at the same moment can both succeed, and one of the two files is lost: give"
    " unique_names=True",
    steady=False,
)
async def _completes_at_once(trials: Trials) -> str:
    path = trials.directory / "completed-at-once"
    begun: list[tuple[str, UploadPart]] = []
    for number in range(_AT_ONCE):
        upload_id = await trials.begin(path)
        begun.append((upload_id, await trials.uploads.put_part(path, upload_id, 1, b"%d" % number)))

    async def complete(number: int) -> None:
        upload_id, part = begun[number]
        await trials.uploads.complete_upload(path, upload_id, [part], exclusive=True)

    return _said(await _winners(complete), "completions")


async def _winners(call: Callable[[int], Awaitable[None]]) -> int:
    """Counts how many of several simultaneous calls succeed, each on the condition that nothing exists."""
    won = 0

    async def one(number: int) -> None:
        nonlocal won
        with suppress(StoreExistsError, StoreConflictError):
            await call(number)
            won += 1

    await run_workers(range(_AT_ONCE), one, workers=_AT_ONCE, operation="trials")
    return won


def _said(won: int, what: str) -> str:
    return "" if won == 1 else f"{won} of {_AT_ONCE} {what} of one name at the same moment succeed"


@_trial("stamp", "a file has the metadata that its upload was begun with", REFUSED, "failed", needed=True)
async def _keeps_stamps(trials: Trials) -> str:
    path = trials.directory / "stamped"
    upload_id = await trials.begin(path)
    await trials.uploads.complete_upload(path, upload_id, [await trials.uploads.put_part(path, upload_id, 1, b"data")])
    return "" if (await trials.store.status(path)).stamp == _STAMP else "metadata of an upload's beginning is lost"


@_trial(
    "conditional replace",
    "a put with If-Match replaces the file that it means, and no other",
    REFUSED,
    "failed",
    needed=True,
)
async def _replaces_on_condition(trials: Trials) -> str:
    path = trials.directory / "replaced"
    identity = (await trials.store.put(path, b"first")).identity
    answer = await trials.wire.send("trials", "PUT", path, (), {"if-match": f'"{_NO_ETAG}"'}, data=b"second")
    if await trials.store.read(path, limit=9) != b"first":
        return "a put replaces what it was told to spare"
    if answer.status != 412:
        return f"a put on the condition of an etag is answered with {answer.status}"
    await trials.wire.done("trials", "PUT", path, (), {"if-match": f'"{identity}"'}, data=b"third")
    return "" if await trials.store.read(path, limit=9) == b"third" else "a file that meets the condition stays"


@_trial("conditional delete", "a delete with If-Match spares another file", REFUSED, "failed", needed=True)
async def _deletes_on_condition(trials: Trials) -> str:
    path = trials.directory / "deleted"
    identity = (await trials.store.put(path, b"data")).identity
    answer = await trials.wire.send("trials", "DELETE", path, (), {"if-match": f'"{_NO_ETAG}"'})
    if await status_or_none(trials.store, path) is None:
        return "a delete deletes what it was told to spare"
    if answer.status != 412:
        return f"a delete on a condition is answered with {answer.status}"
    await trials.wire.done("trials", "DELETE", path, (), {"if-match": f'"{identity}"'})
    return "" if await status_or_none(trials.store, path) is None else "a file that meets the condition is not deleted"


@_trial(
    "abort",
    "an upload that was aborted cannot be completed",
    "a late request can complete what a job rolled back: no job is safe there",
    "failed",
)
async def _ends_uploads(trials: Trials) -> str:
    path = trials.directory / "aborted"
    upload_id = await trials.begin(path)
    part = await trials.uploads.put_part(path, upload_id, 1, b"data")
    await trials.uploads.abort_upload(path, upload_id)
    with suppress(CommitterError):
        await trials.uploads.complete_upload(path, upload_id, [part])
    return "" if await status_or_none(trials.store, path) is None else "an upload that was aborted can be completed"


@_trial(
    "list of uploads",
    "what is pending below a directory is listed",
    "an upload that a killed task began stays pending where no record names it: that costs storage, and no data. Where"
    " the request is refused, so is every job",
    needed=True,
)
async def _lists_uploads(trials: Trials) -> str:
    path = trials.directory / "listed" / "file"
    upload_id = await trials.begin(path)
    found = {one.upload_id: one.path async for one in trials.uploads.list_uploads(path.parent)}
    return "" if found == {upload_id: path} else "an upload that is pending is not listed"


@_trial(
    "digest of a body",
    "a part that is not what was signed is refused",
    "a part that is damaged on its way is kept, unless checksum_algorithm is given",
)
async def _checks_bodies(trials: Trials) -> str:
    path = trials.directory / "signed"
    upload_id = await trials.begin(path)
    query = (("partNumber", "1"), ("uploadId", upload_id))
    other = hashlib.sha256(b"what was meant").hexdigest()
    answer = await trials.wire.send("trials", "PUT", path, query, data=b"what arrived", digest=other)
    return "" if answer.status >= 400 else "a part that is not what was signed is taken"


@_trial("checksum of a part", "a part with another checksum (CRC32) is refused", "checksum_algorithm proves nothing")
async def _checks_checksums(trials: Trials) -> str:
    path = trials.directory / "proved"
    upload_id = await trials.begin(path, {"x-amz-checksum-algorithm": "CRC32"})
    query = (("partNumber", "1"), ("uploadId", upload_id))
    proof = {header_of("CRC32"): checksum("CRC32", b"what was meant")}
    answer = await trials.wire.send("trials", "PUT", path, query, proof, data=b"what arrived")
    return "" if answer.status >= 400 else "a part whose checksum is another one is taken"


@_trial("batch delete", "one call deletes many files", "files are deleted one by one, eight at a time")
async def _deletes_many(trials: Trials) -> str:
    paths = [trials.directory / "many" / str(number) for number in range(2)]
    for path in paths:
        await trials.store.put(path, b"")
    failed = await Deletes(trials.wire).delete_at_once(dict.fromkeys(paths))
    for error in failed.values():
        raise error
    with suppress(StoreNotFoundError):
        _left = [one async for one in trials.store.list(paths[0].parent)]
        return "files that were said to be deleted exist" if _left else ""
    return ""


@_trial(
    "conditional batch delete",
    "one call deletes many files, each on the condition of its etag, and spares another file",
    "the old files of a job that replaces some are deleted one by one, two calls a file",
)
async def _deletes_many_on_condition(trials: Trials) -> str:
    spared, meant = (trials.directory / "many-on-condition" / name for name in ("spared", "meant"))
    identities = [str((await trials.store.put(path, path.name.encode())).identity) for path in (spared, meant)]
    deletes = Deletes(trials.wire)
    refused = await deletes.delete_at_once({spared: identities[1], meant: identities[1]})
    if await status_or_none(trials.store, spared) is None:
        deletes.saw_condition_ignored()
        return "a call for many files deletes what it was told to spare"
    if not isinstance(refused.get(spared), StorePreconditionError):
        return "a call for many files says not that it spared one"
    left = await status_or_none(trials.store, meant)
    return "" if left is None and meant not in refused else "a file that meets the condition is not deleted"
