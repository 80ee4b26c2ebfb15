"""The public interface: jobs, task attempts, and what an operator does about jobs."""
