"""Requests to one container of blobs."""

from __future__ import annotations

from committer.errors import CommitterError
from committer.paths import StorePath
from committer.stores.azure.wire import AzureWire
from committer.stores.azure_blob.errors import error_of
from committer.stores.http import Answer


class BlobWire(AzureWire):
    """Makes, signs and sends requests, each once."""

    def _refusal(
        self, answer: Answer, operation: str, path: StorePath, *, changes: bool, exclusive: bool
    ) -> CommitterError:
        return error_of(answer, operation, path, changes=changes, exclusive=exclusive)
