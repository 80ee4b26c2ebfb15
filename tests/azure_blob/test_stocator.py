"""Jobs of `stocator` on Azurite, looked at by the vendor's client."""

from __future__ import annotations

import pytest

from committer.paths import StorePath
from committer.spec import Delivery
from committer.stores.azure_blob import AzureBlobStore
from tests.azure_blob.container import ContainerChannel
from tests.azure_blob.test_block_list import TRAPS
from tests.stores.test_stocator import check_winners


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_winners_are_named_and_losers_go(
    store: AzureBlobStore, root: StorePath, channel: ContainerChannel, delivery: Delivery
) -> None:
    files = {name: name.encode() for name in TRAPS} | {"day=1/empty": b""}
    await check_winners(root, store, channel, files, delivery)
