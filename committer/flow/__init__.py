"""Flow of work, without knowledge of jobs: bounded workers, pacing, retries, threads and spills to disk."""
