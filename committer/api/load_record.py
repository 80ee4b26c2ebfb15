"""Reads one record of a job, of any kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, get_args

import msgspec

from committer.committers.opened_store import open_store
from committer.errors import RecordError, StoreIsADirectoryError, StoreNotFoundError
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.paths import Destination, StorePath
from committer.readable import UNDECODABLE
from committer.records.job_state import Record, decode_record
from committer.records.manifest import TaskManifest, decode_task_manifest
from committer.records.pending_set import PendingCommit, PendingSet, decode_pending, decode_pending_set
from committer.records.pending_uploads import UploadList, decode_upload_list
from committer.records.success import SuccessData, decode_success

AnyRecord: TypeAlias = TaskManifest | SuccessData | PendingCommit | PendingSet | UploadList | Record


_WHERE: Final = (
    "name a record: DESTINATION/_SUCCESS or, while a job exists, DESTINATION/_temporary/JOB_ID~SETUP/setup, or "
    "decision, or outcome there"
)


async def load_record(
    uri: Destination, *, storage_options: Mapping[str, object] | None = None, config: ConfigLike | None = None
) -> AnyRecord:
    """Reads one record of any kind, up to `config.record_size_limit`.

    Kinds: task manifest, `_SUCCESS` or summary, ``.pending``, ``.pendingset``, setup, opened, intent, decision,
    outcome, entry, list of uploads.

    Raises:
        RecordError: It is none of them, or damaged; names file and member.
        StoreNotFoundError: It does not exist.
        StoreIsADirectoryError: It is a directory.
    """
    path = StorePath.of(uri)
    config = config_of(config) or CommitterConfig()
    try:
        async with open_store(path, storage_options, config) as store:
            try:
                data = await store.read(path, limit=config.record_size_limit)
            except StoreNotFoundError as error:
                if not (isinstance(uri, str) and "%" in uri and ":" in uri):
                    error.next_step = error.next_step or _WHERE
                    raise
                # Records and reports have percent escapes in URIs; a user's path has none.
                path = StorePath.from_uri(uri)
                data = await store.read(path, limit=config.record_size_limit)
    except StoreIsADirectoryError as error:
        error.next_step = error.next_step or _WHERE
        raise
    return decode_any(data, source=str(path))


class _Kind(msgspec.Struct):
    type: str | None = None
    name: str | None = None
    upload: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="uploadId")
    commits: msgspec.Raw = msgspec.Raw()


_OWN: dict[str, type] = {str(kind.__struct_config__.tag): kind for kind in get_args(Record)}


def decode_any(data: bytes, *, source: str) -> AnyRecord:
    """Decodes a record by the kind that it states; raises `RecordError` for an unknown one."""
    try:
        kind = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=_Kind)
    except UNDECODABLE as error:
        if not data.strip():
            raise RecordError(
                "not a record: it is empty: the marker of a committer that writes no report", path=source
            ) from error
        raise RecordError(
            f"not a record, or a damaged one: {error}",
            path=source,
            next_step=f"{_WHERE}; if it is one, `committer jobs DESTINATION` says what ends its job",
        ) from error
    own = _OWN.get(kind.type or "")
    if own is not None:
        return decode_record(data, own, source=source)
    if kind.type == UploadList.__struct_config__.tag:
        return decode_upload_list(data, source=source)
    if kind.type is None and kind.name is not None:
        return decode_success(data, source=source)
    if kind.type is None and bytes(kind.commits):
        return decode_pending_set(data, source=source)
    if kind.type is None and bytes(kind.upload):
        return decode_pending(data, source=source)
    return decode_task_manifest(data, source=source)
