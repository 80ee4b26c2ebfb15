"""The committer block-list, for stores whose files are made of blocks by one call."""
