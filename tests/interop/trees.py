"""Sample output, and what exists at a destination as the operating system sees it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

# A file name each for what could go wrong between a name on disk, Hadoop's Path and the URI in a manifest. No colon:
# Java's committer cannot commit a name that holds one (`COLON_NAMES`).
AWKWARD_NAMES = (
    "plain.csv",
    "with space/two  spaces.csv",
    " leading and trailing ",
    "percent/100%.csv",
    "percent/a%20b%zz%2F%25.csv",
    "hour=10%3A00/part-00000.csv",
    "unicode/Grüße.csv",
    "東京/データ.csv",
    "combining/e\u0301 and \u00e9.csv",
    "emoji/🎉 👩‍👩‍👧.csv",
    "symbols/#?+&=[].csv",
    "symbols/{}^`'\"<>|\\;,@!$~*().csv",
    "q?x=1#frag&y=[2]/f.csv",
    "nbsp/a\u00a0b.csv",
    "spaces/thin\u2009ideographic\u3000line\u2028.csv",
    "control/tab\tnewline\nreturn\rdelete\x7f.csv",
    "dots/..two.csv",
    "dots/trailing.",
    "dots/.../x",
)
COLON_NAMES = ("a:b.csv", "time=10:30:00/c:d.csv", "x:y/plain.csv")
HIDDEN_NAMES = (".hidden", "_metadata", "p=1/.part.tmp", "p=1/_delta_log/0.json", ".dir/f.crc.csv")


def contents(*names: str, salt: str = "") -> dict[str, bytes]:
    """Bytes for each name that no other name, and no other salt, has."""
    return {name: f"{salt}|{name}|".encode() * (1 + len(name) % 7) for name in names}


async def on_disk(directory: Path) -> tuple[dict[str, bytes], set[str]]:
    """Files with their bytes, and directories, below `directory`; `_SUCCESS` and `_temporary` left out.

    Names are kept as they are, so sidecars show.
    """

    def look() -> tuple[dict[str, bytes], set[str]]:
        files: dict[str, bytes] = {}
        directories: set[str] = set()
        for at, names_of_directories, names in os.walk(directory):
            below = Path(at).relative_to(directory)
            if not below.parts:
                names_of_directories[:] = [name for name in names_of_directories if name != "_temporary"]
            directories.update((below / name).as_posix() for name in names_of_directories)
            for name in names:
                if below.parts or name not in ("_SUCCESS", "._SUCCESS.crc"):
                    files[(below / name).as_posix()] = Path(at, name).read_bytes()
        return files, directories

    return await asyncio.to_thread(look)


def without_sidecars(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files but for the `.<name>.crc` that Hadoop's local file system writes beside each."""
    return {name: data for name, data in files.items() if not is_sidecar(name)}


def is_sidecar(name: str) -> bool:
    """Whether a name is that of a checksum sidecar, by Hadoop's own rule."""
    last = name.rpartition("/")[2]
    return last.startswith(".") and last.endswith(".crc")


async def exists(path: Path) -> bool:
    """Whether anything exists at a path."""
    return await asyncio.to_thread(os.path.lexists, path)


async def put(path: Path, data: bytes) -> None:
    """Writes a file as any program does, parents included, without a sidecar."""

    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    await asyncio.to_thread(write)


async def make_directory(path: Path) -> None:
    """Makes a directory and its parents."""
    await asyncio.to_thread(path.mkdir, parents=True)


async def names_in(directory: Path) -> set[str]:
    """Names in one directory."""
    return set(await asyncio.to_thread(os.listdir, directory))
