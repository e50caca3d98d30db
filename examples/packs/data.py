"""Text, JSON and CSV: the small conversions that agents need all the time and should not do by hand."""

import csv
import io
import json
from typing import Annotated, Any, Literal

from onetool.sdk import ToolFailure, tool

pack = "data"

Text = Annotated[str, "The text to work on."]


@tool(pure=True)
def extract(text: Text, start: str, end: str) -> list[str]:
    """Give everything that stands between two marks.

    Args:
        start: The mark before, for example "<b>".
        end: The mark behind, for example "</b>".
    """
    pieces = text.split(start)[1:]
    return [piece.partition(end)[0] for piece in pieces if end in piece]


@tool(pure=True)
def pick(text: Text, path: str) -> Any:
    """Pick a value out of JSON by its path, for example "items.0.name"."""
    value = _from_json(text)
    for step in path.split(".") if path else []:
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, ValueError, TypeError):
            raise ToolFailure(f"nothing at {step!r} in {path!r}", hints=[_what_is_here(value)]) from None
    return value


@tool(pure=True)
def query_csv(
    text: Text,
    where: dict[str, str] | None = None,
    columns: list[str] | None = None,
    limit: Annotated[int, "How many rows at the most."] = 100,
) -> list[dict[str, str]]:
    """Read CSV with a heading and give the rows that match.

    Args:
        where: Column to value; a row must have all of them.
        columns: Only these columns; all when it is left out.
    """
    reader = csv.DictReader(io.StringIO(text))
    known = list(reader.fieldnames or [])
    for name in [*(where or {}), *(columns or [])]:
        if name not in known:
            raise ToolFailure(f"there is no column {name!r}", hints=[f"columns: {', '.join(known)}"])
    rows = [row for row in reader if all(row[name] == value for name, value in (where or {}).items())]
    return [{name: row[name] or "" for name in columns or known} for row in rows[:limit]]


@tool(pure=True)
def convert(text: Text, source: Literal["json", "csv"], target: Literal["json", "csv", "table"]) -> str:
    """Convert a list of records between JSON, CSV and a table of text."""
    records = _from_json(text) if source == "json" else list(csv.DictReader(io.StringIO(text)))
    if not (isinstance(records, list) and all(isinstance(record, dict) for record in records)):
        raise ToolFailure("expected a list of objects")
    if target == "json":
        return json.dumps(records, ensure_ascii=False, indent=2)
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [[str(record.get(name, "")) for name in names] for record in records]
    return _as_csv(names, rows) if target == "csv" else _as_table(names, rows)


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ToolFailure(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None


def _what_is_here(value: Any) -> str:
    if isinstance(value, dict):
        return f"here are: {', '.join(map(str, list(value)[:20]))}"
    return f"here is a list of {len(value)}" if isinstance(value, list) else f"here is {value!r:.80}"


def _as_csv(names: list[str], rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([names, *rows])
    return out.getvalue()


def _as_table(names: list[str], rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [names, *rows]]
    return "\n".join(line.rstrip() for line in lines)
