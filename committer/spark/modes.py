"""Save modes: what becomes of data that stands at the destination, and which of the engine's choices that is.

Spark hands a Python data source one bit: overwrite or not. Its modes ``error`` (the default) and ``ignore`` never reach
it, so they are asked for by the option ``existing``, or through `committer.spark.write`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, cast, get_args

from committer.errors import ConfigurationError, TargetExistsError
from committer.options.config import CommitterConfig

SaveMode: TypeAlias = Literal["error", "ignore", "append", "overwrite"]
PartitionOverwriteMode: TypeAlias = Literal["static", "dynamic"]

_SYNONYMS: Final = {"errorifexists": "error", "default": "error"}
"""What else `DataFrameWriter.mode` takes for its default."""


def save_mode(text: str, what: str = "mode") -> SaveMode:
    """Reads a save mode, in any case and with Spark's synonyms.

    Args:
        text: What the user wrote.
        what: What the user wrote it for.

    Raises:
        ConfigurationError: There is no such mode.
    """
    folded = str(text).strip().lower()
    folded = _SYNONYMS.get(folded, folded)
    if folded not in get_args(SaveMode):
        raise ConfigurationError(
            f"{what} cannot be {text!r}", operation="save", next_step=f"use one of {', '.join(get_args(SaveMode))}"
        )
    return cast("SaveMode", folded)


def partition_overwrite_mode(text: str) -> PartitionOverwriteMode:
    """Reads what ``partitionOverwriteMode`` says, in any case as Spark does.

    Raises:
        ConfigurationError: It is neither ``static`` nor ``dynamic``.
    """
    folded = str(text).strip().lower()
    if folded not in get_args(PartitionOverwriteMode):
        raise ConfigurationError(
            f"partitionOverwriteMode cannot be {text!r}",
            operation="save",
            next_step="use static (replace all of the destination) or dynamic (replace the partitions written)",
        )
    return cast("PartitionOverwriteMode", folded)


def mode_of_write(overwrite: bool, existing: SaveMode | None) -> SaveMode:
    """The mode of a write: what Spark's flag and the option ``existing`` say together.

    Raises:
        ConfigurationError: They contradict each other.
    """
    if not overwrite:
        return existing or "append"
    if existing not in (None, "overwrite"):
        raise ConfigurationError(
            f'mode "overwrite" and the option existing={existing} contradict each other',
            operation="save",
            next_step='with the option existing, use mode("append")',
        )
    return "overwrite"


def target_exists(path: str) -> TargetExistsError:
    """The error of the mode ``error`` where data stands."""
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
    """The engine's choices for a mode.

    ``error`` and ``ignore`` look at the destination when the job is set up, and again when it commits: what others
    else wrote in between refuses the commit. Overwriting without partitions is static, as in Spark.

    Args:
        config: What the user chose besides.
        mode: The mode.
        partition_by: The partition columns.
        overwrite_mode: What is replaced where there are partition columns; None when not given.
        used: Whether the destination holds anything.

    Raises:
        ConfigurationError: Options contradict the mode, or nothing says which partitions are to be replaced.
    """
    chosen = config.superseded_scope not in (None, "directories") or config.superseded_directories
    if config.conflict_mode == "replace" or chosen:
        raise ConfigurationError(
            "conflict_mode=replace, superseded_scope and superseded_directories are what the save mode chooses here",
            operation="save",
            next_step='use mode("overwrite"), and with partitions partitionOverwriteMode=static or dynamic',
        )
    if mode == "append":
        return config
    if config.conflict_mode == "fail":
        raise ConfigurationError(
            f"conflict_mode=fail goes with appending only, not with {mode}",
            operation="save",
            next_step="leave conflict_mode out",
        )
    if mode != "overwrite":
        return config.replace(conflict_mode="fail", superseded_scope="destination")
    if not partition_by or overwrite_mode == "static":
        return config.replace(conflict_mode="replace", superseded_scope="destination")
    if overwrite_mode == "dynamic":
        return config.replace(conflict_mode="replace", superseded_scope="directories")
    if used:
        raise ConfigurationError(
            "the destination holds data, and it is not said whether all of it is to be replaced or only the partitions"
            " that are written",
            operation="save",
            next_step="set the option partitionOverwriteMode to static (all) or dynamic (the partitions written);"
            " committer.spark.write also takes the session's spark.sql.sources.partitionOverwriteMode",
        )
    # There was nothing to replace, so nothing was to be chosen; should there be something by then, the commit refuses.
    return config.replace(conflict_mode="fail", superseded_scope="destination")
