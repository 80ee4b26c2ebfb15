"""The task side of Spark's commit protocol, in Java, and how its jar is built."""
