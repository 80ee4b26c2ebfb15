"""Uploads in records: the upload of a file in a task manifest, and the list of a task attempt's uploads.

The list is this engine's own. Each part is written once, before the first byte of its uploads is sent, and never
rewritten, so a delayed request removes nothing from it.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from committer.errors import RecordError
from committer.readable import UNDECODABLE

VERSION: Final = 1

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class UploadEntry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Upload, or blocks, of a file until its job commits.

    Attributes:
        id: The store's id; for blocks the prefix of their ids.
        etags: Etags of the parts, from number 1; for blocks their ids, none for an empty file.
        checksums: Checksums of the parts, if any: S3 requires them again at completion.
    """

    id: _Text
    etags: tuple[_Text, ...]
    checksums: tuple[str, ...] = ()
    algorithm: str | None = None


class ListedUpload(msgspec.Struct, frozen=True, gc=False):
    """An upload that a task attempt began.

    Attributes:
        name: The file's destination: relative, or an absolute path below a root of the job.
    """

    name: _Text
    id: _Text


class UploadList(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.api.uploads"):
    """A part of the list of a task attempt's uploads."""

    version: int = VERSION
    job_id: str
    task_attempt: str
    uploads: tuple[ListedUpload, ...]


def encode_upload_list(record: UploadList) -> bytes:
    """Encodes a part of a list as JSON."""
    return msgspec.json.encode(record)


def decode_upload_list(data: bytes, *, source: str) -> UploadList:
    """Decodes a part of a list, whose names may lie anywhere; raises RecordError for other data or versions."""
    try:
        record = msgspec.json.decode(data, type=UploadList)
    except UNDECODABLE as error:
        raise RecordError(f"not a list of uploads: {error}", path=source) from error
    if record.version != VERSION:
        raise RecordError(
            f"version {record.version} of a list of uploads is unknown to this release", field="version", path=source
        )
    return record
