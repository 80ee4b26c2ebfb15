"""The names that committers go by, and which one suits a store."""

from __future__ import annotations

from committer.committers.base import Committer
from committer.committers.magic.committer import MagicCommitter
from committer.committers.manifest.committer import ManifestCommitter
from committer.errors import UnsupportedError
from committer.stores.base import Capabilities

DEFAULT_COMMITTER = "manifest"
_FORESEEN = ("directory", "partitioned", "block-list", "file-v1", "file-v2")


def committer_for(name: str) -> Committer:
    """The committer of that name.

    Raises:
        UnsupportedError: There is none.
    """
    found: type[Committer] | None = {kind.name: kind for kind in (ManifestCommitter, MagicCommitter)}.get(name)
    if found is not None:
        return found()
    when = "is not in this release" if name in _FORESEEN else "is unknown"
    raise UnsupportedError(
        f"committer {name!r} {when}",
        operation="open_job",
        next_step=f"use {ManifestCommitter.name!r} or, on S3, {MagicCommitter.name!r}",
    )


def default_committer(capabilities: Capabilities) -> str:
    """The committer that suits a store: `magic` where there are uploads and no renames, else `manifest`."""
    return "magic" if capabilities.publishes_uploads else DEFAULT_COMMITTER
