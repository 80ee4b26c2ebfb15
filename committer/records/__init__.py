"""What is persisted: Hadoop's records and this engine's own, as typed values and pure functions of bytes."""
