"""How large the suites are, and the table of what pytest-benchmark does not show.

With `--benchmark-enable` each suite runs at full size; without it (in CI) each benchmark runs once, in a smoke size of
a fraction of a second, as a test that the benchmark still works. BENCHMARK_SIZE=smoke or =full says it outright.
BENCHMARK_KEEP=NAME keeps what was measured in benchmarks/results/NAME.json.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarks.kept import aligned, keep, machine
from benchmarks.suite import HEADINGS, Sized, Stores, cells
from tests import hangs


@pytest.fixture(scope="session")
def sized(request: pytest.FixtureRequest) -> Sized:
    wanted = os.environ.get("BENCHMARK_SIZE", "")
    if wanted not in {"", "smoke", "full"}:
        raise pytest.UsageError(f"BENCHMARK_SIZE is {wanted!r}: it can be smoke or full")
    disabled = request.config.getoption("benchmark_disable") and not request.config.getoption("benchmark_enable")
    full = wanted == "full" or (not wanted and not disabled)
    return lambda large, small: large if full else small


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with ExitStack() as stack:
        yield Stores(tmp_path_factory.mktemp("servers"), stack)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # pytest-benchmark takes the project's `--dist=loadgroup` for several processes, also where there is but one.
    if config.getoption("benchmark_enable") and not config.getoption("numprocesses", None):
        config.option.dist = "no"
    hangs.watch(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    measured = getattr(session, "benchmarks", [])
    told = [one for one in measured if "calls" in one.extra_info]
    if told:
        terminalreporter.section("calls and CPU")
        terminalreporter.write_line(aligned([HEADINGS, *(cells(one.name, one.extra_info) for one in told)]))
    name = os.environ.get("BENCHMARK_KEEP")
    if name and measured:
        benchmarks = [
            {"name": one.name, "median_s": one.stats.median, "rounds": one.stats.rounds, "extra_info": one.extra_info}
            for one in measured
        ]
        keep(name, {"machine": machine(), "benchmarks": benchmarks})
