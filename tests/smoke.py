"""The tests marked `dear` that each run of `.ci/run` includes, and what each covers; scripts/nightly.sh runs every dear test.

`python -m tests.smoke` prints them as the table of docs/how-it-is-tested.md.
"""

from __future__ import annotations

from typing import Final

SMOKE: Final[dict[str, str]] = {
    "tests/processes/test_killed_driver.py::test_killed_at_a_random_moment_then_recovered[0]": "local disk: a driver killed in its commit, then recovered",
    "tests/processes/test_killed_driver.py::test_rolled_back_while_the_old_driver_is_stopped[replace]": "local disk: a rollback beside a stopped driver, which continues later",
    "tests/processes/test_executors.py::test_zombie_that_commits_after_the_job_committed[message]": "a stale task attempt commits after its job",
    "tests/processes/test_killed_setup.py::test_what_a_killed_setup_left_is_cleaned_up[by name]": "a setup killed at a system call, then cleaned up",
    "tests/processes/test_killed_then_settled.py::test_a_job_that_is_run_again_says_that_its_driver_is_dead_and_its_advice_works": "a dead driver's job run again, by the advice of the error",
    "tests/processes/test_overtaken_drivers.py::test_two_recoverers_of_one_mind[False-local-append]": "two recoverers in two processes",
    "tests/processes/test_stopped_in_a_rename.py::test_marker_of_a_job_that_ended_meanwhile[without the flag-replace]": "`_SUCCESS` of a driver that was stopped before it",
    "tests/processes/test_kill_series.py::test_killed_then_ended[adls-manifest]": "ADLS Gen2 (emulator): a killed driver, then recovered",
    "tests/processes/test_kill_series.py::test_killed_then_ended[gcs-manifest]": "Google Cloud Storage (emulator): a killed driver, then recovered",
    "tests/processes/test_kill_series.py::test_killed_then_ended[local-file-v1]": "`file-v1`: a killed driver, then recovered",
    "tests/processes/test_staging_disks.py::test_a_disk_that_takes_nothing[full-TaskError-left0]": "staging committers: a full disk of temporary files",
    "tests/hdfs/test_hdfs_jobs.py::test_a_job[message]": "HDFS: a job of the manifest committer on a NameNode",
    "tests/hdfs/test_hdfs_jobs.py::test_a_job_whose_calls_lose_their_answers[rename2-before]": "HDFS: lost responses",
    "tests/hdfs/test_hdfs_jobs.py::test_a_job_of_a_file_committer[file-v1]": "HDFS: `file-v1`",
    "tests/hdfs/test_hdfs_killed.py::test_killed_then_recovered[0]": "HDFS: a killed driver, then recovered",
    "tests/hdfs/test_hdfs_conformance.py::TestHdfs::test_rename_replaces_nothing": "HDFS: the rename that publishes",
    "tests/hdfs/test_hdfs_conformance.py::TestHdfs::test_put_exclusively_at_once": "HDFS: the exclusive create that decides",
    "tests/s3/test_jobs.py::test_nothing_is_seen_before_the_commit_and_losers_are_ended[magic]": "S3 (SeaweedFS): a job of `magic`",
    "tests/s3/test_jobs.py::test_nothing_is_seen_before_the_commit_and_losers_are_ended[directory]": "S3 (SeaweedFS): a job of `directory`",
    "tests/processes/test_kill_series.py::test_killed_then_ended[seaweedfs-magic]": "S3 (SeaweedFS): a killed driver, then recovered",
    "tests/s3/test_magic.py::test_replacing[same names]": "S3 (SeaweedFS): an overwrite by `magic`",
    "tests/s3/test_staging.py::test_conflict_modes[replace]": "S3 (SeaweedFS): an overwrite by a staging committer",
    "tests/s3/test_stocator.py::test_names_that_are_traps": "S3 (SeaweedFS): `stocator`",
    "tests/s3/test_s3_faults.py::test_a_completion_whose_answer_is_lost_is_looked_at[False-lose answer]": "S3 (moto): a completion whose response is lost",
    "tests/s3/test_s3_conformance.py::TestOnSeaweedFS::test_put_exclusively_at_once": "S3: conditional writes and completions, on both servers",
    "tests/s3/test_s3_conformance.py::TestOnSeaweedFS::test_complete_exclusively": "S3: conditional writes and completions, on both servers",
    "tests/s3/test_s3_conformance.py::TestOnMoto::test_complete_exclusively": "S3: conditional writes and completions, on both servers",
    "tests/s3/test_s3_conformance.py::TestOnSeaweedFS::test_replace_only_what_was_seen": "S3: conditional writes and completions, on both servers",
    "tests/s3/test_s3_conformance.py::TestOnMoto::test_replace_only_what_was_seen": "S3: conditional writes and completions, on both servers",
    "tests/s3/test_lax_services.py::test_a_job_is_refused_before_it_writes_anything[puts whatever is there-magic]": "a service that ignores conditions is refused",
    "tests/s3/test_java_jobs.py::test_java_tasks_and_a_python_job_commit[magic]": "Java's magic committer: its tasks, this driver",
    "tests/s3/test_java_jobs.py::test_python_tasks_and_a_java_job_commit[magic]": "Java's magic committer: these tasks, its driver",
    "tests/azure_blob/test_block_list.py::test_nothing_is_seen_before_the_commit_and_the_winner_of_two_attempts_has_its_own_blocks": "flat accounts of Azure (Azurite): a job of `block-list`",
    "tests/processes/test_kill_series.py::test_killed_then_ended[azurite-block-list]": "Azurite: a killed driver, then recovered",
    "tests/azure_blob/test_block_list.py::test_replacing[same names]": "Azurite: an overwrite",
    "tests/interop/test_java_tasks.py::test_same_tree_and_counts_as_java_committing_the_same_job": "Java's manifest committer: its tasks, this driver",
    "tests/interop/test_python_tasks.py::test_java_commits_a_job_that_python_set_up[False]": "Java's manifest committer commits a job that Python set up",
    "tests/interop/test_mixed_tasks.py::test_tasks_of_both_kinds[java]": "tasks of both in one job",
    "tests/interop/test_file_output.py::test_java_merges_pythons_tasks_as_its_own[nothing-1]": "Java's FileOutputCommitter merges these tasks",
    "tests/interop/test_records.py::test_java_reads_success_and_summary_of_python": "Java reads `_SUCCESS` and summaries",
    "tests/emulators/test_adls_java_jobs.py::TestAdls::test_python_tasks_and_a_java_job_commit": "Hadoop's manifest committer and ABFS client on the emulator of ADLS Gen2",
    "tests/emulators/test_gcs_java_jobs.py::TestGcs::test_python_tasks_and_a_java_job_commit": "Hadoop's manifest committer and Google's connector on the emulator of Google Cloud Storage",
    "tests/cli/test_processes.py::test_the_installed_script_and_the_module_are_one": "the command line as installed",
    "tests/cli/test_processes.py::test_ctrl_c_in_a_commit_tells_the_truth": "Ctrl-C in a commit of the command line",
    "tests/sync/test_sync_processes.py::test_ctrl_c_in_a_commit": "Ctrl-C in a commit of `committer.sync`",
    "tests/sync/test_sync_processes.py::test_a_forked_child_works_and_exits": "a forked child uses `committer.sync`",
    "tests/sync/test_one_process.py::test_workers_of_a_pool_are_refused_and_take_part_by_the_spec[fork]": "workers of a pool take part by the spec",
    "tests/spark/test_writes.py::test_append_with_partitions": "Spark's data source appends with partitions",
    "tests/spark/test_write.py::test_modes": "`committer.spark.write`: the save modes",
    "tests/spark/test_protocol_golden.py::test_files_names_and_metrics_are_sparks": "Spark's own writers: files, names and metrics as Spark's",
    "tests/spark/test_protocol_modes.py::test_dynamic_overwrite_replaces_the_partitions_written": "Spark's own writers: a dynamic overwrite",
    "tests/spark/test_protocol_failures.py::test_a_task_that_fails_is_run_again": "Spark's own writers: a task that is run again",
    "tests/spark/test_failures.py::test_a_task_that_fails_for_good_aborts_the_job": "the data source: a task that fails for good",
    "tests/spark/test_own_writers.py::test_every_row_is_written_once_and_reported[by_message]": "`foreach_partition`",
    "tests/spark/test_streaming.py::test_batches_arrive_once_and_the_last_two_keep_their_outcomes[format]": "a stream by the data source",
    "tests/spark/test_streaming.py::test_a_query_started_again_goes_on[foreach_batch]": "a stream by `foreach_batch`, started again",
    "tests/spark/test_releases.py::test_the_oldest_release": "the oldest release of Spark: own writers, `foreach_partition`",
    "tests/spark/test_buckets.py::test_a_write_commits_and_an_overwrite_replaces[s3a-s3a-magic]": "Spark and S3",
    "tests/spark/test_connect.py::test_connect": "Spark Connect",
    "benchmarks/test_task_commit.py::test_task_commit[local-listing]": "the benchmarks run",
}


def table() -> str:
    """Returns the table of docs/how-it-is-tested.md: what each smoke test covers."""
    rows = (f"| {covers} | `{name.replace('tests/', '', 1)}` |" for name, covers in SMOKE.items())
    return "\n".join(("| covers | test |", "|---|---|", *rows))


if __name__ == "__main__":
    print(table())
