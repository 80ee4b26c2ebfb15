"""Commands as real processes: the installed script, a terminal, Ctrl-C, a missing extra, a reader that goes away."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from committer.cli import main
from committer.cli.output import Answer, Screen
from committer.cli.text import Exit
from tests.cli.conftest import ROOT, Lake, shell

# Each test starts Python processes.
pytestmark = pytest.mark.xdist_group("processes")

# A store whose renames into the destination take their time, so that a commit can be watched and interrupted.
SLOW = textwrap.dedent(
    """
    import asyncio, sys
    from committer.cli import main
    from committer.events import display
    from committer.stores.local import LocalStore
    from committer.stores.registry import register_store

    class Slow(LocalStore):
        async def rename_file(self, source, destination, **options):
            if destination.name.endswith(".csv"):
                await asyncio.sleep(DELAY * (1 + int(destination.name[5])))
            await super().rename_file(source, destination, **options)

    register_store("file", lambda path, options: Slow())
    display.PLAIN_INTERVAL_S = 0.1
    sys.exit(main(sys.argv[1:]))
    """
)


def slow(delay_s: float, *words: object) -> list[str]:
    """A command line whose publishing is slow."""
    return [sys.executable, "-c", SLOW.replace("DELAY", str(delay_s)), *map(str, words)]


class Terminal:
    """A command that believes it talks to a terminal of 80 columns."""

    def __init__(self, command: list[str]) -> None:
        self._master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment, start_new_session=True
        )
        os.close(slave)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def read_until(self, wanted: Callable[[str], bool], bound_s: float = 30.0) -> str:
        deadline = time.monotonic() + bound_s
        while not wanted(self.seen):
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"it did not say what was waited for: {self.seen!r}"
            try:
                self.seen += os.read(self._master, 65536).decode(errors="replace")
            except OSError as error:
                # Linux says so once the other side is closed.
                assert error.errno == errno.EIO
                break
        return self.seen

    def finish(self) -> int:
        self.read_until(lambda _: False)
        os.close(self._master)
        return self.process.wait(timeout=300)


def lines_of(text: str) -> list[str]:
    """What is seen of text with styles."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "").split("\n")


def test_the_installed_script_and_the_module_are_one(lake: Lake) -> None:
    lake.open()
    script = shutil.which("committer", path=os.path.dirname(sys.executable))
    assert script is not None
    # GNU readline, which pytest imports, puts COLUMNS into the environment past os.environ.
    own = dict(os.environ)
    command = [script, "plan", str(lake.path), "open"]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, shell("plan", lake.path, "open").out)
    assert shell("--version").out.startswith("committer 0.")
    assert shell("--help").code == 0
    assert shell().code == 2


@pytest.mark.parametrize("package", ["cyclopts", "rich"])
def test_a_missing_extra_is_said(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from committer.cli import main; sys.exit(main(['--version']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert "pip install 'lake-committer[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_terminal_no_question_is_asked(lake: Lake) -> None:
    lake.open()
    result = shell("commit", lake.path, "open", stdin="y\n")
    assert result.code == 2
    assert lake.files() == []


@pytest.mark.parametrize(("answer", "code", "files"), [("y\n", 0, 3), ("n\n", 2, 0), ("\n", 2, 0), ("\x04", 2, 0)])
def test_at_a_terminal_a_person_is_asked(lake: Lake, answer: str, code: int, files: int) -> None:
    lake.open()
    terminal = Terminal([sys.executable, "-m", "committer.cli", "commit", str(lake.path), "open"])
    shown = terminal.read_until(lambda seen: "[y/N]" in seen)
    assert "3 files, 6.00 kB, of 3 tasks" in shown
    terminal.type(answer)
    assert terminal.finish() == code
    assert len(lake.files()) == files


def test_json_never_asks(lake: Lake) -> None:
    lake.open()
    words = ["commit", str(lake.path), "open", "--output", "json"]
    terminal = Terminal([sys.executable, "-m", "committer.cli", *words])
    assert terminal.finish() == 2
    text = "\n".join(lines_of(terminal.seen))
    assert json.loads(text[text.index("{") : text.rindex("}") + 1])["plan"]["files"] == 3


def test_nothing_is_wider_than_the_terminal_but_what_is_to_be_copied(lake: Lake) -> None:
    for job_id in ("5f0c6bd2-6a3d-4f0e-8a51-0f6d1f1a7d10", "open"):
        lake.open(job_id)
    lake.decided("0cf5b3a4-3d3e-4a87-9b0e-5a1d4c2f7e10")
    lake.java()
    decision = next(lake.temporary.glob("*/decision"))
    for words in (
        ["jobs", lake.path],
        ["explain", lake.path],
        ["options"],
        ["doctor", lake.path],
        ["inspect", decision],
    ):
        terminal = Terminal([sys.executable, "-m", "committer.cli", *map(str, words)])
        assert terminal.finish() == 0
        wide = [line for line in lines_of(terminal.seen) if len(line) > 80]
        assert all(line.strip().startswith(("committer ", "file:", "mapreduce.")) for line in wide), wide
    # The whole id in the table, however long ago it was.
    a_while_ago = time.time() - 300 * 86400
    for path in lake.temporary.rglob("*"):
        os.utime(path, (a_while_ago, a_while_ago))
    text = shell("jobs", lake.path, COLUMNS="80").out
    assert "5f0c6bd2-6a3d-4f0e-8a51-0f6d1f1a7d10  committer" in text
    assert f"  committer recover {lake.path} 0cf5b3a4-3d3e-4a87-9b0e-5a1d4c2f7e10\n" in text


def test_progress_on_a_terminal_is_a_bar_that_goes_away(lake: Lake) -> None:
    lake.open()
    terminal = Terminal(slow(0.5, "commit", lake.path, "open", "--yes"))
    assert terminal.finish() == 0
    assert re.search(
        r"publish files [━╸╺ ]+ \d of 3, \d\.\d\d kB, \d\.\d/s, \d\.\d s left", "\n".join(lines_of(terminal.seen))
    )
    assert "\x1b[2K" in terminal.seen, "drawn over"


def test_progress_elsewhere_is_lines_on_standard_error(lake: Lake) -> None:
    lake.open()
    command = slow(0.4, "commit", lake.path, "open", "--yes", "--output", "json")
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=300)
    assert done.returncode == 0
    assert json.loads(done.stdout)["report"]["files_committed"] == 3
    assert re.search(
        r"^\[\d+\.\d s\] publish files: \d of 3, \d\.\d\d kB, \d\.\d/s, \d\.\d s left$", done.stderr, re.MULTILINE
    )
    assert "\x1b" not in done.stderr


def test_ctrl_c_in_a_commit_tells_the_truth(lake: Lake) -> None:
    lake.open()
    process = subprocess.Popen(
        slow(2.0, "commit", lake.path, "open", "--yes", "--output", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    deadline = time.monotonic() + 30
    while not lake.in_job("open", "decision").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 3, err
    answer = json.loads(out)
    assert answer["interrupted"] == "commit"
    assert answer["state"] == "decided (commit, 3 files), not ended"
    assert answer["next_step"] == f"committer recover {lake.path} open"
    assert "Traceback" not in err
    assert shell("recover", lake.path, "open", "--yes").code == 0
    assert len(lake.files()) == 3


def test_ctrl_c_at_the_question_changes_nothing(lake: Lake) -> None:
    lake.open()
    terminal = Terminal([sys.executable, "-m", "committer.cli", "commit", str(lake.path), "open"])
    terminal.read_until(lambda seen: "[y/N]" in seen)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.finish() == 130
    assert lake.files() == []
    assert lake.in_job("open", "setup").exists()


def test_a_reader_that_goes_away_is_no_failure_of_the_command(lake: Lake, tmp_path: Path) -> None:
    lake.open()
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "committer.cli", "commit", str(lake.path), "open", "--yes"],
        stdout=write,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        check=False,
        timeout=300,
    )
    os.close(write)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert len(lake.files()) == 3


def on_full_disk(*words: object, full: str) -> subprocess.CompletedProcess[str]:
    """A command one of whose streams goes to a file on a full disk."""
    with open("/dev/full", "w") as disk:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, full: disk}
        return subprocess.run(
            [sys.executable, "-m", "committer.cli", *map(str, words)],
            text=True,
            cwd=ROOT,
            check=False,
            timeout=300,
            **streams,  # type: ignore[call-overload]
        )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_the_answer_is_no_failure_of_what_was_done(lake: Lake) -> None:
    lake.open()
    plan = on_full_disk("plan", lake.path, "open", full="stdout")
    done = on_full_disk("commit", lake.path, "open", "--yes", full="stdout")
    assert [result.returncode for result in (plan, done)] == [1, 0]
    for result in (plan, done):
        assert "error: the answer could not be written to standard output: No space left" in result.stderr
        assert "free space where standard output goes" in result.stderr
        assert "Traceback" not in result.stderr
    assert len(lake.files()) == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_standard_error_keeps_no_command_from_its_work(lake: Lake) -> None:
    """A log on the disk that the job is to make room on."""
    lake.decided()
    done = on_full_disk("recover", lake.path, "decided", "--yes", full="stderr")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "job decided: committed")
    assert len(lake.files()) == 3


def test_a_process_without_standard_streams_does_its_work(lake: Lake) -> None:
    lake.decided()
    command = [sys.executable, "-m", "committer.cli", "recover", str(lake.path), "decided", "--yes"]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], cwd=ROOT, check=False, timeout=300)
    assert done.returncode == 0
    assert len(lake.files()) == 3


def test_ctrl_c_before_a_command_began_changes_nothing_and_says_so(lake: Lake) -> None:
    """Modules take half a second to load."""
    lake.open()
    script = textwrap.dedent(
        """
        import sys
        class Pressed:
            def find_spec(self, name, path, target=None):
                if name == "rich.console":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Pressed())
        from committer.cli import main
        sys.exit(main(sys.argv[1:]))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "commit", str(lake.path), "open", "--yes"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (130, "committer: interrupted; nothing was changed\n")
    assert lake.files() == []


@pytest.mark.parametrize(
    ("confirmed", "told"), [((), "nothing was changed"), (("--yes",), "what was confirmed is done")]
)
def test_ctrl_c_while_the_answer_is_printed_says_what_was_done(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    confirmed: tuple[str, ...],
    told: str,
) -> None:
    def interrupted(screen: Screen, answer: Answer) -> Exit:
        raise KeyboardInterrupt

    lake.open()
    monkeypatch.setattr(Screen, "end", interrupted)
    assert main(["abort", str(lake.path), "open", *confirmed]) == 130
    assert f"interrupted; {told}" in capsys.readouterr().err
