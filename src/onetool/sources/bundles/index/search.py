"""Search, page by page in the order of ranks: `prefix > whole word > fuzzy > recency`.

No rank depends on other tools, so a page begins exactly where the one before it ended, whoever writes in between.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from onetool.sources.bundles.index.lists import IN_USE, bodies
from onetool.sources.bundles.index.tiers import Step, steps
from onetool.sources.bundles.store import Found, Rank

Row = tuple[int, int, int, str, int]  # a rank's parts, and the tool's number


def search(
    database: sqlite3.Connection,
    query: str,
    include_disabled: bool,
    after: Rank | None,
    limit: int,
    known: Callable[[], Sequence[str]],
) -> list[Found]:
    rows: list[Row] = []
    for step in steps(query, known):
        if len(rows) < limit and (after is None or after[:2] <= (step.tier, step.scores[1])):
            rows += _answers(database, step, include_disabled, after, limit - len(rows))
        if len(rows) >= limit:
            break
    tools = bodies(database, [row[-1] for row in rows])
    return [
        Found(Rank(tier, float(score), age, id), tool)
        for (tier, score, age, id, _), tool in zip(rows, tools, strict=True)
    ]


def _answers(
    database: sqlite3.Connection, step: Step, include_disabled: bool, after: Rank | None, limit: int
) -> list[Row]:
    where = [step.where] if include_disabled else [step.where, IN_USE]
    values: dict[str, Any] = {**step.values, "limit": limit}
    least, most = step.scores
    if after is not None and after[:2] >= (step.tier, least):
        values |= {"score": after.score, "age": after.age, "id": after.id}
        same = least == most  # then there is nothing to compare, and an index may do
        where.append("(age, id) > (:age, :id)" if same else f"({step.score}, age, id) > (:score, :age, :id)")
    order = "age, id" if least == most else "score, age, id"
    asked = (
        f"{step.first} SELECT {step.tier} AS tier, {step.score} AS score, age, id, no FROM {step.table} "  # noqa: S608 - our own words
        f"WHERE {' AND '.join(where)} ORDER BY {order} LIMIT :limit"
    )
    return database.execute(asked, values).fetchall()
