"""Reading what exists of a job: its directory, its records, and `_SUCCESS`."""
