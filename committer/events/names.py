"""Statistic names: Hadoop's, so that one dashboard reads reports of both engines, and a few of our own.

Hadoop's ``op_msync``, ``op_is_file``, ``op_is_directory``, ``op_create_one_directory``, ``op_directory_scan``,
``op_delete_file_under_destination``, ``object_list_request`` and ``object_continue_list_request`` are missing:
this engine makes no such call, or counts it as ``op_list_status`` or ``op_mkdirs``.
"""

from __future__ import annotations

from typing import Final

# Durations. Stages of a job and of a task.
JOB_STAGE_ABORT: Final = "job_stage_abort"
JOB_STAGE_CLEANUP: Final = "job_stage_cleanup"
COMMITTER_COMMIT_JOB: Final = "committer_commit_job"
JOB_STAGE_CREATE_TARGET_DIRS: Final = "job_stage_create_target_dirs"
JOB_STAGE_LOAD_MANIFESTS: Final = "job_stage_load_manifests"
JOB_STAGE_RENAME_FILES: Final = "job_stage_rename_files"
JOB_STAGE_SAVE_SUCCESS_MARKER: Final = "job_stage_save_success_marker"
JOB_STAGE_SETUP: Final = "job_stage_setup"
JOB_STAGE_OPTIONAL_VALIDATE_OUTPUT: Final = "job_stage_optional_validate_output"
TASK_STAGE_ABORT_TASK: Final = "task_stage_abort_task"
TASK_STAGE_COMMIT: Final = "task_stage_commit"
TASK_STAGE_SAVE_MANIFEST: Final = "task_stage_save_manifest"
TASK_STAGE_SCAN_DIRECTORY: Final = "task_stage_scan_directory"
TASK_STAGE_SETUP: Final = "task_stage_setup"
TASK_STAGE_SAVE_SUMMARY_FILE: Final = "task_stage_save_summary_file"
TASK_STAGE_SAVE_TASK_MANIFEST: Final = "task_stage_save_task_manifest"

# Durations. Calls to the store, and what stages do with several of them.
COMMIT_FILE_RENAME: Final = "commit_file_rename"
OP_CREATE_DIRECTORIES: Final = "op_create_directories"
OP_DELETE: Final = "op_delete"
OP_DELETE_DIR: Final = "op_delete_dir"
OP_GET_CONTENT_SUMMARY: Final = "op_get_content_summary"
OP_GET_FILE_STATUS: Final = "op_get_file_status"
OP_LIST_STATUS: Final = "op_list_status"
OP_LOAD_MANIFEST: Final = "op_load_manifest"
OP_LOAD_ALL_MANIFESTS: Final = "op_load_all_manifests"
OP_MKDIRS: Final = "op_mkdirs"
OP_MKDIR_RETURNED_FALSE: Final = "op_mkdir_returned_false"
OP_PREPARE_DIR_ANCESTORS: Final = "op_prepare_dir_ancestors"
OP_RENAME: Final = "op_rename"
STORE_IO_RATE_LIMITED: Final = "store_io_rate_limited"

# Samples: a counter that adds values up, with their minimum, maximum and mean.
COMMITTER_BYTES_COMMITTED: Final = "committer_bytes_committed"
COMMITTER_FILES_COMMITTED: Final = "committer_files_committed"
# What S3A's committers call the same.
COMMITTER_COMMITS_COMPLETED: Final = "committer_commits_completed"
COMMITTER_TASKS_COMPLETED: Final = "committer_tasks_completed"
COMMITTER_TASKS_FAILED: Final = "committer_tasks_failed"
COMMITTER_TASK_DIRECTORY_COUNT: Final = "committer_task_directory_count"
COMMITTER_TASK_DIRECTORY_DEPTH: Final = "committer_task_directory_depth"
COMMITTER_TASK_FILE_COUNT: Final = "committer_task_file_count"
COMMITTER_TASK_FILE_SIZE: Final = "committer_task_file_size"
COMMITTER_TASK_MANIFEST_FILE_SIZE: Final = "committer_task_manifest_file_size"
# Other writers' summary files and manifests that the job removed.
COMMITTER_STALE_METADATA: Final = "committer_stale_metadata"
COMMIT_FILE_RENAME_RECOVERED: Final = "commit_file_rename_recovered"

# Hadoop's names for store calls that its manifest committer does not count, and ours.
OP_CREATE: Final = "op_create"
OP_OPEN: Final = "op_open"
OP_HSYNC: Final = "op_hsync"
STORE_IO_REQUEST: Final = "store_io_request"
STORE_IO_RETRY: Final = "store_io_retry"
STORE_IO_THROTTLED: Final = "store_io_throttled"
OP_LINK: Final = "op_link"

# What Hadoop's S3A counts of uploads and batches; listing parts, or blocks, is ours. A file is materialized when its
# upload is completed, or its list of blocks put.
COMMITTER_MATERIALIZE_FILE: Final = "committer_materialize_file"
MULTIPART_UPLOAD_PART_PUT: Final = "multipart_upload_part_put"
OBJECT_BULK_DELETE_REQUEST: Final = "object_bulk_delete_request"
OBJECT_MULTIPART_INITIATED: Final = "object_multipart_initiated"
OBJECT_MULTIPART_ABORTED: Final = "object_multipart_aborted"
OBJECT_MULTIPART_LIST: Final = "object_multipart_list"
OBJECT_MULTIPART_LIST_PARTS: Final = "object_multipart_list_parts"

# What a duration statistic and its failures add to their name.
FAILURES: Final = ".failures"
MINIMUM: Final = ".min"
MAXIMUM: Final = ".max"
MEAN: Final = ".mean"
