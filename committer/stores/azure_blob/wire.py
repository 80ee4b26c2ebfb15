"""Requests to one container of blobs."""

from __future__ import annotations

from collections.abc import Mapping

from committer.paths import StorePath
from committer.stores.azure.access import Query
from committer.stores.azure.wire import NOTHING, AzureWire
from committer.stores.azure_blob.errors import error_of
from committer.stores.http import Answer, Body


class BlobWire(AzureWire):
    """Makes, signs and sends requests, each once."""

    async def done(
        self,
        operation: str,
        method: str,
        path: StorePath,
        query: Query = NOTHING,
        headers: Mapping[str, str] | None = None,
        *,
        data: Body | None = None,
        changes: bool = True,
        at: str | None = None,
        exclusive: bool = False,
    ) -> Answer:
        """As `send`, for what has no refusal of its own meaning.

        Raises:
            StoreError: The service refused.
        """
        answer = await self.send(operation, method, path, query, headers, data=data, changes=changes, at=at)
        if answer.status >= 300:
            raise error_of(answer, operation, path, changes=changes, exclusive=exclusive)
        return answer
