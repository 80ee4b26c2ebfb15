#!/usr/bin/env bash
# Builds lake-committer's sdist and wheel into a directory: scripts/build_wheel.sh DIRECTORY
# Needs uv and a JDK of Java 17 or later. No part of Spark is fetched: committer/spark/jvm/api.txt has the signatures. The
# same commit, JDK and hatchling give the same bytes.
set -euo pipefail
[ $# = 1 ] || { echo "usage: scripts/build_wheel.sh DIRECTORY" >&2; exit 2; }
mkdir -p "$1"
directory="$(cd "$1" && pwd)"
cd "$(dirname "$0")/.."
unset LAKE_COMMITTER_WITHOUT_JARS
uv build --out-dir "$directory"
ls "$directory"
