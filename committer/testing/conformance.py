"""Conformance suite for stores, for pytest and pytest-asyncio in its ``auto`` mode.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        async def store(self): ...      # the store; closed after the test

        @pytest.fixture
        def root(self): ...             # an empty directory of its own for every test

        @pytest.fixture
        def channel(self, root): ...    # another way to the same files: a `Channel`, with links a `LinkChannel`

The suite tests of an ability that a store does not declare only that the store refuses it properly, and skips the
other tests of it.
"""

from __future__ import annotations

from committer.testing._conformance_base import Channel
from committer.testing._conformance_directories import DeleteConformance, DirectoryConformance
from committer.testing._conformance_files import FileConformance
from committer.testing._conformance_renames import LinkChannel, LinkConformance, RenameConformance
from committer.testing._conformance_uploads import BlockListConformance, UploadConformance

__all__ = ["Channel", "LinkChannel", "StoreConformance"]


class StoreConformance(
    FileConformance,
    DirectoryConformance,
    RenameConformance,
    LinkConformance,
    DeleteConformance,
    UploadConformance,
    BlockListConformance,
):
    """The whole suite. A subclass gives the fixtures ``store``, ``root`` and ``channel``, each fresh for every test."""
