"""One JVM for all of these tests, and what they all need around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .hadoop import Hadoop
from .jvm import Jvm, NoJavaError

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.java)


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    try:
        jvm = Jvm(tmp_path_factory.mktemp("jvm"))
    except NoJavaError as error:
        pytest.skip(str(error))
    yield jvm
    jvm.close()


@pytest.fixture(scope="session")
def hadoop(jvm: Jvm) -> Hadoop:
    return Hadoop(jvm)
