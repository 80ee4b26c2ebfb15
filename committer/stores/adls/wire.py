"""Requests to one filesystem of an Azure Data Lake Storage Gen2 account, as they go over the wire."""

from __future__ import annotations

from collections.abc import Awaitable

from committer.errors import CommitterError
from committer.paths import StorePath
from committer.stores.azure.errors import error_of
from committer.stores.azure.wire import NOTHING, AzureWire
from committer.stores.http import Answer


class AdlsWire(AzureWire):
    """Makes, signs and sends requests, each once, to the DFS endpoint, or the blob endpoint."""

    def rename(
        self,
        operation: str,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool,
        identity: str | None,
        over: str | None = None,
        continuation: str = "",
    ) -> Awaitable[Answer]:
        """Sends "Path - Create" with a rename source; `over` is the etag that the destination must have."""
        headers = {}
        if not replace:
            headers["If-None-Match"] = "*"
        if over is not None:
            headers["If-Match"] = f'"{over}"'
        if identity is not None:
            headers["x-ms-source-if-match"] = f'"{identity}"'
        query = (("continuation", continuation),) if continuation else NOTHING
        return self.send(operation, "PUT", destination, query, headers, source=source)

    def _refusal(
        self, answer: Answer, operation: str, path: StorePath, *, changes: bool, exclusive: bool
    ) -> CommitterError:
        return error_of(answer, operation, path, changes=changes)
