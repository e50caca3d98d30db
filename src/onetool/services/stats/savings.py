"""What was saved, by what was measured, and nothing else.

    context_saved = Σ over menus sent (tokens of a list of every tool − tokens sent)
                  + Σ over runs with a reply (tokens in and out of its calls − tokens of its code − tokens of the reply)
    time_saved_ms = Σ over runs with n ≥ 2 calls ((n − 1) × g + max(0, durations of its calls − duration of the run))

Of a call no more counts than would have been sent: what is larger goes behind a handle. Of a run that failed its calls
count for nothing: they would have to be made again. g is the median of how long that client took from an answer of
ours to its next call, in the same period; 0 where that was never measured. Terms may be negative. A run is of the
period in which it ended, with all its calls. Of one tool: the runs in which it took part, each as a whole, and no
menus, which belong to no tool.
"""

import sqlite3
from typing import Any

from onetool.services.stats.spread import read

_RUNS = """
WITH those AS (
    SELECT id, client, ok, duration_ms, tokens_in FROM runs
    WHERE at >= :since AND (:tool IS NULL OR id IN (SELECT run FROM calls WHERE tool = :tool AND run IS NOT NULL))
), made AS (
    SELECT run, count(*) AS calls, sum(duration_ms) AS duration_ms,
        sum((min(bytes_in, :inline) + 3) / 4 + (min(bytes_out, :inline) + 3) / 4) AS tokens
    FROM calls WHERE run IN (SELECT id FROM those) GROUP BY run
), sent AS (
    SELECT run, sum(tokens_out) AS tokens FROM replies WHERE run IN (SELECT id FROM those) GROUP BY run
)
SELECT
    those.client,
    coalesce(sum(CASE WHEN sent.tokens NOT NULL THEN ok * coalesce(made.tokens, 0) - tokens_in - sent.tokens END), 0),
    coalesce(sum(CASE WHEN made.calls >= 2 THEN made.calls - 1 END), 0),
    coalesce(sum(CASE WHEN made.calls >= 2 THEN max(0, made.duration_ms - those.duration_ms) END), 0),
    count(*)
FROM those LEFT JOIN made ON made.run = id LEFT JOIN sent ON sent.run = id
GROUP BY those.client
"""
_MENUS = "SELECT coalesce(sum(full_tokens - sent_tokens), 0) FROM menus WHERE at >= :since AND :tool IS NULL"
_GAPS = "SELECT client, spread(duration_ms) FROM gaps WHERE at >= :since GROUP BY client"


def savings(database: sqlite3.Connection, since: float | None, tool: str | None, inline_bytes: int) -> dict[str, Any]:
    """context_saved, time_saved_ms, and of how many runs. `inline_bytes` are sent of a value at the most."""
    asked = {"since": float("-inf") if since is None else since, "tool": tool, "inline": inline_bytes}
    gaps = {client: read(spread).p50 or 0.0 for client, spread in database.execute(_GAPS, asked)}
    tokens, milliseconds, runs = database.execute(_MENUS, asked).fetchone()[0], 0.0, 0
    for client, in_runs, turns, side_by_side, count in database.execute(_RUNS, asked):
        tokens += in_runs
        milliseconds += turns * gaps.get(client, 0.0) + side_by_side
        runs += count
    return {"context_saved": tokens, "time_saved_ms": round(milliseconds), "runs": runs}
