"""What a space in memory can do: as one of the other kinds of store does, and what may differ from that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from committer.stores.base import Capabilities

_FLAT: Final = Capabilities(directories=False, atomic_directory_rename=False, max_path_bytes=1025)
_WITHOUT_RENAMES: Final = msgspec.structs.replace(
    _FLAT,
    atomic_file_rename=False,
    no_replace_rename=False,
    replacing_rename=False,
    identity_through_rename=False,
    conditional_delete=True,
    conditional_replace=True,
)

PROFILES: Final[Mapping[str, Capabilities]] = {
    "local": Capabilities(hard_links=True, durable=True, max_name_bytes=255, max_path_bytes=4095),
    "hdfs": Capabilities(deletes_trees=True, max_name_bytes=255, max_path_bytes=8000),
    "adls": Capabilities(
        implicit_parents=True,
        deletes_trees=True,
        conditional_rename=True,
        conditional_replace=True,
        tree_listing=True,
        forbids_trailing_period=True,
        max_path_bytes=1024,
    ),
    "gcs": msgspec.structs.replace(
        _FLAT,
        conditional_rename=True,
        versions=True,
        conditional_delete=True,
        conditional_replace=True,
        batch_delete=True,
        max_batch_delete=100,
    ),
    # S3's 5 MiB, the least that a part may have but for the last, is for a flag to set: a test has small files.
    "s3": msgspec.structs.replace(
        _WITHOUT_RENAMES,
        multipart=True,
        batch_delete=True,
        conditional_batch_delete=True,
        max_parts=10_000,
        max_part_bytes=5 << 30,
        max_batch_delete=1000,
    ),
    "azure-flat": msgspec.structs.replace(
        _WITHOUT_RENAMES,
        block_lists=True,
        forbids_trailing_period=True,
        max_parts=50_000,
        max_part_bytes=4000 << 20,
    ),
}
"""What each profile can do.

``local`` and ``hdfs`` have real directories and rename them atomically; ``adls`` also checks the identity of what it
renames, and makes missing parents up; ``gcs`` has no directories and renames one object at a time, with the stamp that
is its identity, to a new version; ``s3`` and ``azure-flat`` (blobs without a hierarchical namespace) rename nothing:
one has uploads whose completion is withheld, the other lists of blocks.
"""

DEFAULT_PROFILE: Final = "local"
# What a space can be told to be besides its profile; the rest of its capabilities follow from how it is built.
FLAGS: Final = (
    "atomic_directory_rename",
    "batch_delete",
    "block_lists",
    "case_folding",
    "conditional_batch_delete",
    "conditional_delete",
    "conditional_rename",
    "conditional_replace",
    "deletes_by_name",
    "deletes_trees",
    "forbids_trailing_period",
    "hard_links",
    "identity",
    "identity_through_rename",
    "multipart",
    "no_replace_rename",
    "replacing_rename",
    "unicode_folding",
    "versions",
)
LIMITS: Final = ("max_batch_delete", "max_part_bytes", "max_parts", "min_part_bytes")
