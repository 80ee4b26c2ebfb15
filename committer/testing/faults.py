"""A store that fails when it is told to, and remembers what it was asked."""

from __future__ import annotations

import msgspec

from committer.paths import StorePath
from committer.stores.base import Capabilities
from committer.stores.uploads import UploadPart
from committer.testing._fault_kinds import Call, Fault, FaultKind, SimulatedCrash
from committer.testing._faulty_calls import FaultyCalls, Hook

__all__ = ["Call", "Fault", "FaultKind", "FaultyStore", "Hook", "SimulatedCrash"]


class FaultyStore(FaultyCalls):
    """Wraps a store and stands for one process's connection to it.

    Each rename of a file is a call, whether or not the inner store renames many in one. A listing is one call; what
    hits it after its effect comes behind its last entry. `local_path` and `close` are no store calls: they always work,
    so that a test can tidy up after a crash.

    Attributes:
        inner: The store itself: what another process, or a test, looks through.
        faults: What goes wrong from now on; the first that fits a call hits it. May be changed at any time.
        calls: Every call so far, in order of arrival.
        before_call: Awaited before each call, crashes included; lets a test do something at exactly that moment.
        after_effect: Called right after each effect, before anything else can happen; of late requests too.
        crashed: Whether the process died.
        under_way: Requests that will still arrive.
    """

    @property
    def capabilities(self) -> Capabilities:
        """The inner store's, without `batch_rename` and `tree_counts`."""
        can = self.inner.capabilities
        return msgspec.structs.replace(can, batch_rename=False, tree_counts=False) if can.batch_rename else can

    async def put_part(
        self, path: StorePath, upload_id: str, number: int, data: bytes | bytearray | memoryview
    ) -> UploadPart:
        """One call."""
        # It may arrive when the caller's buffer holds something else.
        return await super().put_part(path, upload_id, number, bytes(data))

    async def put_block(self, path: StorePath, block_id: str, data: bytes | bytearray | memoryview) -> None:
        """One call."""
        await super().put_block(path, block_id, bytes(data))
