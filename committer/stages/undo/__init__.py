"""Rolling a job back."""
