import asyncio, pytest
from hypothesis import given, strategies as st


async def test_loop():
    print(type(asyncio.get_running_loop()), asyncio.get_running_loop().get_task_factory())


@given(st.integers())
async def test_h(x):
    await asyncio.sleep(0)


@pytest.mark.asyncio(loop_factories=["uvloop"])
async def test_one():
    print(type(asyncio.get_running_loop()))


def test_sync(tmp_path):
    (tmp_path / "x").write_text("x")


@given(st.integers())
def test_hs(x):
    pass


async def test_thread(tmp_path):
    await asyncio.to_thread((tmp_path / "x").write_text, "x")
