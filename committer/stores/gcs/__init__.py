"""Store for Google Cloud Storage."""

from committer.stores.gcs.store import GcsStore

__all__ = ["GcsStore"]
