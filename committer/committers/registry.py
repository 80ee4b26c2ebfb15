"""The registry of committers by name, and the choice of one for a store."""

from __future__ import annotations

from typing import Final

from committer.committers.base import Committer
from committer.committers.block_list import BlockListCommitter
from committer.committers.file.committer_v1 import FileCommitterV1
from committer.committers.file.committer_v2 import FileCommitterV2
from committer.committers.magic import MagicCommitter
from committer.committers.manifest import ManifestCommitter
from committer.committers.staging.committer import DirectoryCommitter, PartitionedCommitter
from committer.committers.stocator import StocatorCommitter
from committer.errors import UnsupportedError
from committer.layout import JobLayout
from committer.options.hadoop import instead_of
from committer.paths import StorePath
from committer.stores.base import Capabilities, Store

_KINDS: Final = (
    ManifestCommitter,
    MagicCommitter,
    BlockListCommitter,
    DirectoryCommitter,
    PartitionedCommitter,
    FileCommitterV1,
    FileCommitterV2,
    StocatorCommitter,
)
BUILT_IN: Final[dict[str, type[Committer]]] = {kind.name: kind for kind in _KINDS}
DEFAULT_COMMITTER: Final = ManifestCommitter.name

_registered: dict[str, type[Committer]] = {}


def register_committer(kind: type[Committer]) -> None:
    """Registers a committer class under its name in this process; each process of its jobs must do so."""
    if kind.name in BUILT_IN:
        raise ValueError(f"a committer of this library is called {kind.name!r}")
    _registered[kind.name] = kind


def unregister_committer(name: str) -> None:
    """Undoes `register_committer`."""
    _registered.pop(name, None)


def is_known(name: str) -> bool:
    """Returns whether this process knows a committer of that name."""
    return name in BUILT_IN or name in _registered


def committer_for(name: str) -> Committer:
    """Returns the committer of that name, else raises `UnsupportedError`."""
    if not isinstance(name, str):
        raise UnsupportedError(
            f"a committer is asked for by its name, not by a {type(name).__name__}",
            operation="open_job",
            next_step=f"give a text, such as {ManifestCommitter.name!r}, or leave it out",
        )
    if is_known(name):
        return (BUILT_IN | _registered)[name]()
    step = instead_of(name) or (
        "if it is one of your own, give its class to committer.committers.registry.register_committer first; "
        f"else use {ManifestCommitter.name!r}; on S3 {MagicCommitter.name!r}, on Azure without hierarchical namespace "
        f"{BlockListCommitter.name!r}"
    )
    known = ", ".join(sorted(BUILT_IN | _registered))
    raise UnsupportedError(
        f"committer {name!r} is unknown in this process; there are: {known}", operation="open_job", next_step=step
    )


def default_committer(capabilities: Capabilities) -> str:
    """Returns the committer that suits a store: `magic` for uploads, `block-list` for block lists, else `manifest`."""
    if capabilities.publishes_uploads:
        return MagicCommitter.name
    return BlockListCommitter.name if capabilities.publishes_block_lists else DEFAULT_COMMITTER


def suited_committer(store: Store) -> Committer:
    """Returns the committer that suits a store, for jobs without a record of theirs."""
    return committer_for(default_committer(store.capabilities))


def layout_for(
    store: Store, destination: StorePath, job_id: str, job_attempt: int = 0, *, setup: str = ""
) -> JobLayout:
    """Returns the layout of a job without records; without a setup, Hadoop's layout for the store's committer."""
    kind = JobLayout if setup else suited_committer(store).listed_layout
    return kind(destination, job_id, job_attempt, setup=setup)
