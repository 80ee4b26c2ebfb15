"""Stages that load the records of the task attempts that win."""
