"""Stages and files of a task attempt: writing, commit, abort."""
