"""Uploads in records: the one that a file of a task manifest waits in, and the list of all that a task attempt began.

The list is this engine's own. Each of its parts is written once, before the first byte of the uploads it names is sent,
and never rewritten, so that a request that comes late takes nothing out of it.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from committer.errors import RecordError
from committer.readable import UNDECODABLE

VERSION: Final = 1

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class UploadEntry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The upload that a file waits in until its job is committed, or the blocks.

    Attributes:
        id: The store's name for it; of blocks what their ids begin with.
        etags: What proves its parts, by their numbers from 1; the ids of blocks, of which an empty file has none.
        checksums: Their checksums, where the upload has them: S3 asks for them again at completion.
        algorithm: What those were made with.
    """

    id: _Text
    etags: tuple[_Text, ...]
    checksums: tuple[str, ...] = ()
    algorithm: str | None = None


class ListedUpload(msgspec.Struct, frozen=True, gc=False):
    """An upload that a task attempt began.

    Attributes:
        name: Where its file goes: relative to the destination, or an absolute path below a root of the job.
        id: The store's name for it.
    """

    name: _Text
    id: _Text


class UploadList(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="committer.api.uploads"):
    """A part of the list of a task attempt's uploads.

    Attributes:
        version: Of this form.
        job_id: The job.
        task_attempt: The attempt.
        uploads: What it began.
    """

    version: int = VERSION
    job_id: str
    task_attempt: str
    uploads: tuple[ListedUpload, ...]


def encode_upload_list(record: UploadList) -> bytes:
    """A part of a list as JSON."""
    return msgspec.json.encode(record)


def decode_upload_list(data: bytes, *, source: str) -> UploadList:
    """Reads a part of a list; what it names may still lie anywhere.

    Raises:
        RecordError: It is something else, or of a version this release does not know.
    """
    try:
        record = msgspec.json.decode(data, type=UploadList)
    except UNDECODABLE as error:
        raise RecordError(f"not a list of uploads: {error}", path=source) from error
    if record.version != VERSION:
        raise RecordError(
            f"version {record.version} of a list of uploads is unknown to this release", field="version", path=source
        )
    return record
