"""Pending sets: task records of S3A's committers, through which Java and Python take part in one job.

The engine converts a set to a task manifest when it loads it; a decision rests on copies of that manifest.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import md5
from typing import Final

from committer.errors import InvalidPathError, RecordError, StoreNotFoundError
from committer.file_names import check_destination_name
from committer.layout import JobLayout, has_nonce, task_in
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.hadoop_json import bad_record
from committer.records.limits import LIMITS
from committer.records.manifest import DirectoryEntry, FileEntry, TaskManifest, encode_task_manifest
from committer.records.pending_set import (
    PENDING_SET_SUFFIX,
    PartEtag,
    PendingCommit,
    PendingSet,
    decode_pending,
    decode_pending_set,
    encode_pending_set,
    java_date,
)
from committer.records.pending_uploads import UploadEntry
from committer.stages.base import AttemptIdentity, StageContext, TaskOutput, WrittenFile
from committer.stages.load.manifest_forms import ManifestForms
from committer.stages.load.winning_records import aborted_attempt

NONCE: Final = "committer.nonce"
"""Key in an upload's extra data: the nonce of the run that began it, and so its stamp."""

TASK_ATTEMPT: Final = "task.attempt.id"
"""Key in a set's extra data, where Hadoop has it in memory too; Hadoop never writes it."""

_WHAT: Final = "pending set"
_NONCE: Final = re.compile(r"[0-9a-f]{1,64}\Z")
_MD5: Final = re.compile(r"[0-9a-fA-F]{32}\Z")


class PendingSetForms(ManifestForms):
    """Record format of Hadoop's pending sets, where its tasks and drivers look for them; `name` is its committer's."""

    names_directories = False

    def __init__(self, name: str) -> None:
        super().__init__(name, like_s3a=True)

    def encode_task(self, context: StageContext, output: TaskOutput, directories: list[DirectoryEntry]) -> bytes:
        """Encodes a pending set, which names no directories."""
        layout, identity = context.layout, output.identity
        attempt = layout.task_attempt_id(identity.task, identity.attempt)
        record = PendingSet(
            # Hadoop's driver is given this id, and refuses a record with another.
            jobId=layout.unique_id,
            commits=tuple(pending_of(context, identity, file, attempt=attempt) for file in output.files),
            extraData={TASK_ATTEMPT: attempt, NONCE: identity.nonce},
            iostatistics=context.statistics.snapshot(),
        )
        return encode_pending_set(record, etags=context.config.pending_etags)

    def decode_task(self, context: StageContext, path: StorePath, data: bytes) -> TaskManifest:
        """Converts a pending set to a task manifest; its files' paths are not checked yet (G10).

        A file that another engine sent has no stamp: its etag proves it, which S3 computes from those of its parts.
        """
        layout, source = context.layout, str(path)
        record = decode_pending_set(data, source=source)
        if record.jobId not in ("", layout.job_id, layout.unique_id):
            raise bad_record(_WHAT, "jobId", f"{record.jobId!r} is not {layout.job_id!r}", source=source)
        attempt = _attempt_of(record, source)
        if record.commits and not attempt and not layout.keeps_elsewhere:
            raise bad_record(_WHAT, "commits[0].taskId", "it names no task attempt", source=source)
        if layout.is_record(path.name):
            task = path.name.removesuffix(layout.record_suffix)
        else:
            # An abort renamed it: the attempt tells the task.
            task = task_in(attempt or aborted_attempt(layout, path.name))
        files: list[FileEntry] = []
        # A set of Hadoop's staging committers names no attempt; its task's name is unique to its run.
        run = _run_of(attempt or task, record.extraData)
        for index, one in enumerate(record.commits):
            try:
                target = target_of(layout, one)
            except InvalidPathError as error:
                raise bad_record(_WHAT, f"commits[{index}]", error.message, source=source) from error
            run = _run_of(attempt or task, one.extraData)
            upload = entry_of_pending(one)
            files.append(
                FileEntry(
                    # No file has this path: it tells whose file it is, and is unique in the attempt.
                    s=(layout.tasks / run / str(index)).uri,
                    d=target.uri,
                    z=one.length,
                    e=None if has_nonce(run) else composite_etag(upload.etags),
                    u=upload,
                )
            )
        return TaskManifest(
            jobId=layout.job_id,
            jobAttemptNumber=layout.job_attempt,
            taskID=task,
            taskAttemptID=attempt,
            taskAttemptDir=(layout.tasks / run).uri if run else "",
            files=files,
            iostatistics=record.iostatistics,
        )

    def as_manifest(self, context: StageContext, path: StorePath, data: bytes) -> bytes:
        """Returns a record as an encoded manifest; the copy that a decision rests on is one already."""
        is_set = path.parent == context.layout.manifests
        return encode_task_manifest(self.decode_task(context, path, data)) if is_set else data

    def is_list_of(self, place: StorePath, winners: AbstractSet[str]) -> bool:
        """Returns whether a place is of a winning task, task attempt or run."""
        return super().is_list_of(place, winners) or place.name.removesuffix(PENDING_SET_SUFFIX) in winners


def pending_of(context: StageContext, identity: AttemptIdentity, file: WrittenFile, *, attempt: str) -> PendingCommit:
    """Returns Hadoop's record of one uploaded file; `attempt` is empty while it may still be aborted, as in Hadoop."""
    if file.upload is None:
        raise RecordError(f"{file.name} waits in no upload", operation="commit_task", path=file.name)
    now = context.runtime.now()
    at_ms = int(now.timestamp() * 1000)
    target = context.layout.target(file.destination)
    return PendingCommit(
        uri=target.uri,
        uploadId=file.upload.id,
        bucket=target.authority,
        destinationKey=target.path[1:],
        created=at_ms,
        saved=at_ms,
        date=java_date(now),
        jobId=context.layout.job_id if attempt else "",
        taskId=attempt,
        etags=_etags_of(file.upload),
        extraData={NONCE: identity.nonce},
        length=file.size,
    )


def target_of(layout: JobLayout, pending: PendingCommit) -> StorePath:
    """Returns the path of a recorded upload's file, not checked yet (G10); refuses another bucket's."""
    destination, key = layout.destination, pending.destinationKey
    if pending.bucket != destination.authority:
        raise InvalidPathError(f"its bucket {pending.bucket!r} is not {destination.authority!r}", path=ascii(key))
    if not {"", ".", ".."}.isdisjoint(key.split("/")):
        raise InvalidPathError(f"no path spells the key {key!r}", path=ascii(key))
    return StorePath(destination.scheme, destination.authority, f"/{key}")


def entry_of_pending(pending: PendingCommit) -> UploadEntry:
    """Converts Hadoop's record of an upload to this engine's."""
    checksums = tuple(part.checksum for part in pending.etags if part.checksum)
    algorithm = pending.etags[0].checksumAlgorithm
    whole = algorithm is not None and len(checksums) == len(pending.etags)
    return UploadEntry(
        id=pending.uploadId,
        etags=tuple(part.etag.strip('"') for part in pending.etags),
        checksums=checksums if whole else (),
        algorithm=algorithm if whole else None,
    )


def composite_etag(etags: tuple[str, ...]) -> str | None:
    """Returns the etag that S3 gives a file of these parts (MD5 of their MD5s); None if one is no MD5."""
    if not all(map(_MD5.match, etags)):
        return None
    joined = b"".join(map(bytes.fromhex, etags))
    return f"{md5(joined, usedforsecurity=False).hexdigest()}-{len(etags)}"


def _attempt_of(record: PendingSet, source: str) -> str:
    """Returns the attempt of a set; empty for one of Hadoop's without: an empty set, or a staging committer's."""
    named = {one.taskId for one in record.commits if one.taskId}
    if TASK_ATTEMPT in record.extraData:
        named.add(record.extraData[TASK_ATTEMPT])
    if len(named) > 1:
        reason = f"it names more than one task attempt: {', '.join(sorted(named))}"
        raise bad_record(_WHAT, "commits", reason, source=source)
    attempt = named.pop() if named else ""
    if attempt and not task_in(attempt):
        raise bad_record(_WHAT, "commits[0].taskId", f"{attempt!r} is no task attempt", source=source)
    return attempt


def _run_of(attempt: str, extra: Mapping[str, str]) -> str:
    """Returns the run of an upload or a set; Hadoop has one run for each attempt, named by the attempt's id."""
    nonce = extra.get(NONCE, "")
    return f"{attempt}-{nonce}" if _NONCE.match(nonce) else attempt


def _etags_of(upload: UploadEntry) -> tuple[PartEtag, ...]:
    # With the header's quotes, as Java writes them since it uses version 2 of the SDK.
    if len(upload.checksums) != len(upload.etags):
        return tuple(PartEtag(f'"{etag}"') for etag in upload.etags)
    return tuple(
        PartEtag(f'"{etag}"', upload.algorithm, checksum)
        for etag, checksum in zip(upload.etags, upload.checksums, strict=True)
    )


_log = job_logger("committer.stages")


def uploads_of_set(context: StageContext, record: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
    """Yields path and id of the uploads that a pending set names: one read.

    Damaged records, and paths outside destination and roots (G10), are skipped with a warning.
    """
    limit = context.config.record_size_limit
    return _named(context, record, lambda data: decode_pending_set(data, source=str(record)).commits, limit=limit)


def uploads_of_pending(context: StageContext, record: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
    """Yields the upload that a record of a single file names, as `uploads_of_set`."""
    return _named(context, record, lambda data: [decode_pending(data, source=str(record))], limit=LIMITS["pending"])


async def _named(
    context: StageContext, record: StorePath, decode: Callable[[bytes], Sequence[PendingCommit]], *, limit: int
) -> AsyncIterator[tuple[StorePath, str]]:
    try:
        named = decode(await context.holding(record).read(record, limit=limit))
    except StoreNotFoundError:
        return
    except RecordError as error:
        _log.warning("uploads may stay pending: %s", error)
        return
    layout = context.layout
    for one in named:
        try:
            path = target_of(layout, one)
            check_destination_name(layout.name_of(path), layout.roots)
        except InvalidPathError as error:
            _log.warning("%s names an upload to %r, which stays as it is: %s", record, one.destinationKey, error)
            continue
        yield path, one.uploadId
