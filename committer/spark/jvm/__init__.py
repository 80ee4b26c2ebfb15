"""Task side of Spark's commit protocol, in Java, and the build of its jar."""
