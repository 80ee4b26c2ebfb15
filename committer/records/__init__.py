"""Persisted records of Hadoop and of this engine, as typed values and pure functions of bytes."""
