"""What a user of the engine holds: jobs, task attempts, and what an operator does about jobs."""
