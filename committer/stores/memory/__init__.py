"""Store in memory that can behave as any other kind of store."""

from committer.stores.memory.store import PROFILES, MemorySpace, MemoryStore

__all__ = ["PROFILES", "MemorySpace", "MemoryStore"]
