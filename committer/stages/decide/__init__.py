"""The decision, and the entries by which jobs exclude each other."""
