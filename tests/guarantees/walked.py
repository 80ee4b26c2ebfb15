"""Worlds on a server, which are walked whole each time they are looked at."""

from __future__ import annotations

from committer_testing.simulate.worlds import ELSEWHERE, OUT, TEMPORARY, World, setups_of_directories


class WalkedWorld(World):
    """What readers see is told from all files; there are few."""

    def setups_of(self, job_id: str) -> set[str]:
        paths = (*self.files(), *(f"{directory}/" for directory in self.directories()))
        return setups_of_directories(paths).get(job_id, set())

    def visible(self) -> dict[str, bytes]:
        found = self.files(but=f"{OUT}/{TEMPORARY}")
        here = {name.removeprefix(f"{OUT}/"): data for name, data in found.items() if name.startswith(f"{OUT}/")}
        return here | {f"/{name}": data for name, data in found.items() if name.startswith(f"{ELSEWHERE}/")}
