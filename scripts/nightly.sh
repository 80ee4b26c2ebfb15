#!/usr/bin/env bash
# Runs the long tests: all of pytest, the simulator, planted bugs, the model, sweeps, killed processes, Spark's releases and suites.
# Hours on two cores. Tests that mount or change the user need root, and are skipped without it.
# `scripts/nightly.sh PART...` runs some parts; `scripts/nightly.sh table` prints what has been run at this commit so far.
# Logs and results lie in build/nightly/COMMIT; a part that passed there is not run again.
set -uo pipefail
cd "$(dirname "$0")/.."

commit="$(git rev-parse --short=8 HEAD)$(git diff --quiet HEAD || echo -modified)"
results="build/nightly/$commit"
mkdir -p "$results"

in_project() { uv run --locked --extra spark --extra cli "$@"; }
search() { in_project python -m committer_testing.simulate --json "$results/$1.json" "${@:2}"; }

declare -A parts=(
    [engine]="all tests of the engine without servers, the slow ones too"
    [search-tests]="all tests of the simulator, the guarantees, neighbours, the model and the sweep"
    [stores]="all tests of stores and servers"
    [processes]="all tests with killed processes, and beside Hadoop's own committers"
    [spark-tests]="all tests of Spark, but for the two parts below"
    [manifest]="100,000 seeds of the manifest committer"
    [workers]="5,000 seeds of workers that publish"
    [magic]="50,000 seeds of magic"
    [block-list]="50,000 seeds of block-list"
    [directory]="25,000 seeds of the staging committer directory"
    [partitioned]="25,000 seeds of the staging committer partitioned"
    [exhaustive]="every single fault at every call of small jobs"
    [rarer]="the same in rarer situations, and of a larger job"
    [pairs]="every pair of faults of the smallest job"
    [mutants]="planted bugs of the engine, which the search must find"
    [model]="the model of the commit protocol, every scenario without faults and with one, to 2 million states"
    [model-mutants]="planted bugs of the model"
    [disk]="at every system call of the local store: an error, a death, a stop, a planted link"
    [kills]="800 killed drivers, recoverers and cleanups on every store, of each committer"
    [spark]="every feature on every release of Spark from 3.5 on, and the wheel and sdist as installed"
    [suites]="Spark's own published test suites"
)
order=(engine search-tests stores processes spark-tests spark suites model model-mutants mutants disk kills exhaustive rarer pairs manifest magic block-list directory partitioned workers)

searches=(simulate guarantees neighbours protocol_model disk_sweep)
servers=(stores s3 hdfs azure_blob emulators services hostile)
beside=(processes interop)
of_parts=("${searches[@]}" "${servers[@]}" "${beside[@]}" spark)
all_tests() { in_project pytest -n 2 -q -m '' "$@"; }

run() {
    case "$1" in
    # A folder that no other part names belongs to this one.
    engine) all_tests tests "${of_parts[@]/#/--ignore=tests/}" ;;
    search-tests) all_tests "${searches[@]/#/tests/}" ;;
    stores) all_tests "${servers[@]/#/tests/}" ;;
    processes) all_tests "${beside[@]/#/tests/}" ;;
    spark-tests) all_tests tests/spark --ignore=tests/spark/test_releases.py --ignore=tests/spark/test_published_suites.py ;;
    manifest) search manifest --seeds 100000 --start 80000000 ;;
    workers) search workers --seeds 5000 --start 85000000 --workers ;;
    magic) search magic --seeds 50000 --start 81000000 --committer magic ;;
    block-list) search block-list --seeds 50000 --start 82000000 --committer block-list ;;
    directory) search directory --seeds 25000 --start 83000000 --committer directory ;;
    partitioned) search partitioned --seeds 25000 --start 84000000 --committer partitioned ;;
    exhaustive) search exhaustive --exhaustive ;;
    rarer | pairs) search "$1" --exhaustive "$1" ;;
    mutants) in_project python -m tests.simulate --mutant all ;;
    model) in_project python -m tests.protocol_model ;;
    model-mutants) in_project python -m tests.protocol_model --mutant all ;;
    disk) in_project python -m tests.disk_sweep ;;
    kills) in_project python -m tests.processes.kill_series --runs 800 ;;
    spark) in_project pytest -q -m '' tests/spark/test_releases.py ;;
    suites) in_project pytest -q -m '' tests/spark/test_published_suites.py ;;
    esac
}

table() {
    printf '\n| part | what | result | time | last line |\n|---|---|---|---|---|\n'
    for part in "${order[@]}"; do
        [ -f "$results/$part.result" ] || continue
        read -r code seconds <"$results/$part.result"
        [ "$code" = 0 ] && said=passed || said="FAILED ($code)"
        printf '| %s | %s | %s | %s min | %s |\n' "$part" "${parts[$part]}" "$said" "$(((seconds + 59) / 60))" \
            "$(grep -v '^ *$' "$results/$part.log" | tail -n 1 | tr '|' '/')"
    done
}

[ "${1:-}" != table ] || { table; exit; }
failed=0
for part in "${@:-${order[@]}}"; do
    [ -n "${parts[$part]:-}" ] || { echo "there is no part $part: ${order[*]}" >&2; exit 2; }
    [ ! -f "$results/$part.result" ] || [ "$(cut -d ' ' -f 1 "$results/$part.result")" != 0 ] || continue
    echo "=== $part: ${parts[$part]}"
    began=$SECONDS code=0
    run "$part" >"$results/$part.log" 2>&1 || code=$?
    echo "$code $((SECONDS - began))" >"$results/$part.result"
    [ "$code" = 0 ] || { failed=1; tail -n 20 "$results/$part.log"; }
done
table
exit "$failed"
