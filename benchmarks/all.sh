#!/usr/bin/env bash
# Measures everything again and fills in README.md and docs/. An hour on a quiet machine, Linux,
# a JDK (17 or later), 4 GB of /dev/shm. Give names to measure those alone: benchmarks/all.sh far scale
set -euo pipefail
cd "$(dirname "$0")/.."

all=(far near many no-op scale large-jobs overwrite rate-cap publish-elsewhere calls-a-file task-commit spark-write spark-commit spark-overwrite clients gcs-move adls-rename s3-complete s3-overwrite http-split ten-million scaling suites)
[ "$#" -gt 0 ] && all=("$@")

run() { uv run --locked --extra spark --extra cli "$@"; }

for name in "${all[@]}"; do
    printf '\n=== %s (%ss)\n' "$name" "$SECONDS"
    case "$name" in
        far) run benchmarks/compare_java.py --shape 1000x10x100 --latency-ms 20 --threads 32,64,256 ;;
        near) run benchmarks/compare_java.py --shape 1000x10x100 --latency-ms 0 --threads 32 --v1 ;;
        many) run benchmarks/compare_java.py --shape 1000x100x1000 --latency-ms 0 --threads 32 ;;
        no-op) run benchmarks/compare_java.py --shape 1000x1000x100 --latency-ms 0 --threads 32 --no-op ;;
        scale) run benchmarks/scale.py ;;
        large-jobs) run benchmarks/large_jobs.py ;;
        overwrite) run benchmarks/overwrite.py ;;
        rate-cap) run benchmarks/rate_cap.py ;;
        publish-elsewhere) run --extra adls --extra s3 python -m benchmarks.publish_elsewhere ;;
        calls-a-file) run --extra adls python -m benchmarks.calls_a_file ;;
        task-commit) run benchmarks/task_commit.py ;;
        spark-write) run benchmarks/spark_write.py ;;
        spark-commit) run benchmarks/spark_commit.py ;;
        spark-overwrite) run benchmarks/spark_overwrite.py ;;
        clients) run --extra gcs --extra adls --extra s3 python -m benchmarks.compare_clients ;;
        gcs-move) run --extra gcs python -m benchmarks.gcs_move ;;
        adls-rename) run python -m benchmarks.adls_rename ;;
        # It pins a botocore of its own, so it gets an environment of its own.
        s3-complete) run --with aiobotocore python -m benchmarks.s3_complete ;;
        s3-overwrite) run --extra s3 python -m benchmarks.s3_overwrite ;;
        http-split) run --extra adls --extra s3 python -m benchmarks.http_split ;;
        ten-million) run --extra adls --extra s3 python -m benchmarks.ten_million ;;
        scaling) run benchmarks/scaling.py ;;
        suites) BENCHMARK_KEEP=suites run pytest benchmarks --benchmark-enable -q ;;
        *) echo "there is no measurement $name" >&2; exit 2 ;;
    esac
done
run benchmarks/report.py
