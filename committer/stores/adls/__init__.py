"""Store for Azure Data Lake Storage Gen2."""

from committer.stores.adls.store import AdlsStore

__all__ = ["AdlsStore"]
