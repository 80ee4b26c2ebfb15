"""Loading the records of the task attempts that win."""
