"""Hadoop's FileOutputCommitter: a task commits by a rename of its directory, job commit merges the directories."""
