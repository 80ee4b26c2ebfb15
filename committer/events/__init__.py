"""Statistics and progress of a commit, and their listeners."""

from __future__ import annotations

from committer.events import names
from committer.events.progress import JobEvent, Listener, Progress
from committer.events.statistics import Statistics

__all__ = ["JobEvent", "Listener", "Progress", "Statistics", "names"]
