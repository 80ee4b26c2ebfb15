"""Errors for a write that is refused before anything is done."""

from __future__ import annotations

from committer.errors import ConfigurationError, UnsupportedError


def bad_write(message: str, next_step: str) -> ConfigurationError:
    """Builds the error for options or data that do not make a write."""
    return ConfigurationError(message, operation="save", next_step=next_step)


def unsupported_write(message: str, next_step: str) -> UnsupportedError:
    """Builds the error for a write that is possible elsewhere, and not here."""
    return UnsupportedError(message, operation="save", next_step=next_step)
