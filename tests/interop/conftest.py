"""One JVM for all of these tests, and what they all need around it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .hadoop import Hadoop
from .jvm import Jvm, jvm_fixture

HERE = f"{Path(__file__).parent}{os.sep}"


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.java)


jvm = jvm_fixture()


@pytest.fixture(scope="session")
def hadoop(jvm: Jvm) -> Hadoop:
    return Hadoop(jvm)
