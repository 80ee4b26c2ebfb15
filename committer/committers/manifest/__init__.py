"""The manifest committer."""
