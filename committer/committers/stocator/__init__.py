"""The committer stocator."""
