"""Store of the local file system."""

from committer.stores.local.store import LocalStore

__all__ = ["LocalStore"]
