"""The magic committer, and the records by which it works with Hadoop's."""
