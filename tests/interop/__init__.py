"""Interoperation with Hadoop's own manifest committer, run from the jars that PySpark carries."""
