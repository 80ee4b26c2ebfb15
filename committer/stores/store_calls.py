"""What each method of a store is to what wraps the store: how it is counted, what it costs, when it may be repeated."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from committer.events import names
from committer.flow.weights import Kind

Repetition: TypeAlias = Literal["changes nothing", "repeatable", "once"]
CHANGES_NOTHING: Final = "changes nothing"
REPEATABLE: Final = "repeatable"
ONCE: Final = "once"


class Operation(msgspec.Struct, frozen=True):
    """What one method of a store is, to what wraps the store.

    Attributes:
        name: The method; of a writer's, with ``writer``.
        statistic: What it is counted and timed under; empty for what is not.
        kind: What it does, which says what it takes of an endpoint's rate.
        repetition: When it may be sent again after a lost answer: it changes nothing; it does the same again; never.
    """

    name: str
    statistic: str
    kind: Kind
    repetition: Repetition


PROBE: Final = Operation("probe", "", "write", CHANGES_NOTHING)
STATUS: Final = Operation("status", names.OP_GET_FILE_STATUS, "read", CHANGES_NOTHING)
LIST: Final = Operation("list", names.OP_LIST_STATUS, "read", CHANGES_NOTHING)
LIST_TREE: Final = Operation("list_tree", names.OP_LIST_STATUS, "read", CHANGES_NOTHING)
READ: Final = Operation("read", names.OP_OPEN, "read", CHANGES_NOTHING)
PUT: Final = Operation("put", names.OP_CREATE, "write", REPEATABLE)
PUT_EXCLUSIVE: Final = Operation("put", names.OP_CREATE, "write", ONCE)
OPEN_WRITER: Final = Operation("open_writer", names.OP_CREATE, "write", ONCE)
WRITE: Final = Operation("write", "", "write", ONCE)
CLOSE_WRITER: Final = Operation("close_writer", "", "write", ONCE)
ABORT_WRITER: Final = Operation("abort_writer", "", "write", REPEATABLE)
MAKE_DIRECTORY: Final = Operation("make_directory", names.OP_MKDIRS, "write", REPEATABLE)
# By version, too: to what wraps a store the one is as the other.
RENAME_FILE: Final = Operation("rename_file", names.COMMIT_FILE_RENAME, "write", ONCE)
RENAME_FILES: Final = Operation("rename_files", names.COMMIT_FILE_RENAME, "write", ONCE)
COUNT_TREE: Final = Operation("count_tree", names.OP_GET_CONTENT_SUMMARY, "read", CHANGES_NOTHING)
RENAME_DIRECTORY: Final = Operation("rename_directory", names.OP_RENAME, "write", ONCE)
DELETE_FILE: Final = Operation("delete_file", names.OP_DELETE, "delete", REPEATABLE)
DELETE_FILE_IF: Final = Operation("delete_file_if", names.OP_DELETE, "delete", REPEATABLE)
DELETE_FILES: Final = Operation("delete_files", names.OBJECT_BULK_DELETE_REQUEST, "delete", REPEATABLE)
DELETE_DIRECTORY: Final = Operation("delete_directory", names.OP_DELETE, "delete", REPEATABLE)
DELETE_TREE: Final = Operation("delete_directory", names.OP_DELETE_DIR, "delete", REPEATABLE)
LINK_FILE: Final = Operation("link_file", names.OP_LINK, "write", ONCE)
ENCLOSE_FILE: Final = Operation("enclose_file", names.OP_RENAME, "write", ONCE)
MADE_ALIKE: Final = Operation("made_alike", names.OP_GET_FILE_STATUS, "read", CHANGES_NOTHING)
FIND_LINK: Final = Operation("find_link", names.OP_GET_FILE_STATUS, "read", CHANGES_NOTHING)
SYNC_TO_DISK: Final = Operation("sync", names.OP_HSYNC, "write", REPEATABLE)
# Of the same name as `put`: to what wraps a store the one is as the other.
REPLACE_FILE: Final = Operation("put", names.OP_CREATE, "write", ONCE)
PUT_DESCRIBED: Final = Operation("put", names.OP_CREATE, "write", REPEATABLE)
CREATE_UPLOAD: Final = Operation("create_upload", names.OBJECT_MULTIPART_INITIATED, "write", ONCE)
PUT_PART: Final = Operation("put_part", names.MULTIPART_UPLOAD_PART_PUT, "write", REPEATABLE)
COMPLETE_UPLOAD: Final = Operation("complete_upload", names.COMMITTER_MATERIALIZE_FILE, "write", ONCE)
ABORT_UPLOAD: Final = Operation("abort_upload", names.OBJECT_MULTIPART_ABORTED, "delete", REPEATABLE)
LIST_UPLOADS: Final = Operation("list_uploads", names.OBJECT_MULTIPART_LIST, "read", CHANGES_NOTHING)
LIST_PARTS: Final = Operation("list_parts", names.OBJECT_MULTIPART_LIST_PARTS, "read", CHANGES_NOTHING)
PUT_BLOCK: Final = Operation("put_block", names.MULTIPART_UPLOAD_PART_PUT, "write", REPEATABLE)
PUT_BLOCK_LIST: Final = Operation("put_block_list", names.COMMITTER_MATERIALIZE_FILE, "write", ONCE)
LIST_BLOCKS: Final = Operation("list_uncommitted_blocks", names.OBJECT_MULTIPART_LIST_PARTS, "read", CHANGES_NOTHING)
