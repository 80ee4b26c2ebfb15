"""Save modes, and their meaning as commit options.

Spark tells a Python data source only whether to overwrite. The modes ``error`` (Spark's default) and ``ignore``
come through the option ``existing``, or through `committer.spark.write`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, cast, get_args

from committer.errors import TargetExistsError
from committer.options.config import CommitterConfig
from committer.spark.refusals import bad_write

SaveMode: TypeAlias = Literal["error", "ignore", "append", "overwrite"]
PartitionOverwriteMode: TypeAlias = Literal["static", "dynamic"]

_SYNONYMS: Final = {"errorifexists": "error", "default": "error"}
"""Synonyms that `DataFrameWriter.mode` accepts for its default."""


def save_mode(text: str, what: str = "mode") -> SaveMode:
    """Parses a save mode, in any case and with Spark's synonyms; `what` names it in the error."""
    folded = str(text).strip().lower()
    folded = _SYNONYMS.get(folded, folded)
    if folded not in get_args(SaveMode):
        raise bad_write(f"{what} cannot be {text!r}", f"use one of {', '.join(get_args(SaveMode))}")
    return cast("SaveMode", folded)


def partition_overwrite_mode(text: str) -> PartitionOverwriteMode:
    """Parses ``partitionOverwriteMode``, in any case as Spark does."""
    folded = str(text).strip().lower()
    if folded not in get_args(PartitionOverwriteMode):
        raise bad_write(
            f"partitionOverwriteMode cannot be {text!r}",
            "use static (replace all of the destination) or dynamic (replace the partitions written)",
        )
    return cast("PartitionOverwriteMode", folded)


def mode_of_write(overwrite: bool, existing: SaveMode | None) -> SaveMode:
    """Combines Spark's overwrite flag with the option ``existing``."""
    if not overwrite:
        return existing or "append"
    if existing not in (None, "overwrite"):
        raise bad_write(
            f'mode "overwrite" and the option existing={existing} contradict each other',
            'with the option existing, use mode("append")',
        )
    return "overwrite"


def target_exists(path: str) -> TargetExistsError:
    """Returns the error of mode ``error`` at a destination with data."""
    return TargetExistsError(
        "the destination holds data already, and the mode is error",
        operation="save",
        path=path,
        next_step="use append or overwrite as the mode (existing=... of the data source), or another destination",
    )


def commit_config(
    config: CommitterConfig,
    mode: SaveMode,
    *,
    partition_by: Sequence[str],
    overwrite_mode: PartitionOverwriteMode | None,
    used: bool,
) -> CommitterConfig:
    """Returns the commit options for a save mode; refuses options that contradict it, or an ambiguous overwrite.

    ``error`` and ``ignore`` check the destination at setup and again at commit: data that others wrote in between
    refuses the commit. An overwrite without partitions is static, as in Spark. `used` means that the destination
    holds anything.
    """
    chosen = config.superseded_scope not in (None, "directories") or config.superseded_directories
    if config.conflict_mode == "replace" or chosen:
        raise bad_write(
            "conflict_mode=replace, superseded_scope and superseded_directories are what the save mode chooses here",
            'use mode("overwrite"), and with partitions partitionOverwriteMode=static or dynamic',
        )
    if mode == "append":
        return config
    if config.conflict_mode == "fail":
        raise bad_write(f"conflict_mode=fail goes with appending only, not with {mode}", "leave conflict_mode out")
    if mode != "overwrite":
        return config.replace(conflict_mode="fail", superseded_scope="destination")
    if not partition_by or overwrite_mode == "static":
        return config.replace(conflict_mode="replace", superseded_scope="destination")
    if overwrite_mode == "dynamic":
        return config.replace(conflict_mode="replace", superseded_scope="directories")
    if used:
        raise bad_write(
            "the destination holds data, and it is not said whether all of it is to be replaced or only the partitions"
            " that are written",
            "set the option partitionOverwriteMode to static (all) or dynamic (the partitions written);"
            " committer.spark.write also takes the session's spark.sql.sources.partitionOverwriteMode",
        )
    # Nothing existed, so the user had nothing to choose; if data appears by then, the commit refuses.
    return config.replace(conflict_mode="fail", superseded_scope="destination")
