"""Requests to one filesystem of an Azure Data Lake Storage Gen2 account, as they go over the wire."""

from __future__ import annotations

from committer.errors import CommitterError
from committer.paths import StorePath
from committer.stores.azure.errors import error_of
from committer.stores.azure.wire import NOTHING, AzureWire, encoded
from committer.stores.http import Answer


class AdlsWire(AzureWire):
    """Makes, signs and sends requests, each once, to the DFS endpoint, or the blob endpoint."""

    async def rename(
        self,
        operation: str,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool,
        identity: str | None,
        over: str | None = None,
        continuation: str = "",
    ) -> Answer:
        """Sends "Path - Create" with a rename source; `over` is the etag that the destination must have."""
        access = self._access
        if not access.ready:
            # The source's URL needs the signature too.
            await access.prepare()
        place = f"/{self._filesystem}{encoded(source.path)}"
        headers = {"x-ms-rename-source": f"{place}?{access.signature}" if access.signature else place}
        if not replace:
            headers["If-None-Match"] = "*"
        if over is not None:
            headers["If-Match"] = f'"{over}"'
        if identity is not None:
            headers["x-ms-source-if-match"] = f'"{identity}"'
        query = (("continuation", continuation),) if continuation else NOTHING
        return await self.send(operation, "PUT", destination, query, headers)

    def _refusal(
        self, answer: Answer, operation: str, path: StorePath, *, changes: bool, exclusive: bool
    ) -> CommitterError:
        return error_of(answer, operation, path, changes=changes)
