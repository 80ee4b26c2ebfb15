"""Publishing the files of a decided job."""
