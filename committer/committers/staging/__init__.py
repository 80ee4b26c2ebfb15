"""S3A's staging committers: tasks write to a disk of their machine, and send the files when they commit."""
