"""How work flows: bounded workers over one iterator, pacing, retry, and spilling to disk.

Nothing here knows what a job is. Modules are imported by name: `runtime` (time, chance and threads, injectable),
`workers` (N workers, one iterator), `pacing` (limits per endpoint), `retry` (what may be sent again, and when) and
`spill` (bounded memory).
"""
