"""Hadoop's FileOutputCommitter: a task commits by renaming its directory, job commit merges the directories."""
