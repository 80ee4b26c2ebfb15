"""Setting up a job."""
