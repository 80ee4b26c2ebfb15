"""What a task attempt does: it writes files, then commits or aborts them."""
