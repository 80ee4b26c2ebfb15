"""A store in memory that can behave as any other kind of store does."""

from committer.stores.memory.profiles import PROFILES
from committer.stores.memory.store import MemorySpace, MemoryStore

__all__ = ["PROFILES", "MemorySpace", "MemoryStore"]
