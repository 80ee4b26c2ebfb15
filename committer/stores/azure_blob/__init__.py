"""Store for Azure's storage accounts without hierarchical namespace."""

from committer.stores.azure_blob.store import AzureBlobStore

__all__ = ["AzureBlobStore"]
