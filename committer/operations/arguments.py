"""Arguments of operations that cost data where they are misread."""

from __future__ import annotations

from committer.errors import ConfigurationError


def check_flag(value: object, what: str, operation: str) -> None:
    """Refuses what is neither True nor False, for a word that takes data back or away: any text counts as true.

    Raises:
        ConfigurationError: It is something else, such as ``"false"`` of an environment variable.
    """
    if not isinstance(value, bool):
        raise ConfigurationError(
            f"{what} must be True or False, not {value!r}",
            operation=operation,
            next_step=f"give {what}=True, or leave it out",
        )
