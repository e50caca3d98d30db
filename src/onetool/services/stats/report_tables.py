"""Tables of the report: those behind the charts, those that are charts themselves, and the one that can be sorted.

All cells come in ready for a page. Cells and rows are not closed: HTML needs no end tags there, and
pages are smaller for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """A row of a chart that is a table: what it is about, its parts with their classes, and what stands behind it."""

    name: str
    parts: Sequence[tuple[str, float]]
    value: str
    tip: str
    full_name: str = ""


def bars(title: str, rows: Sequence[Bar], heads: tuple[str, str]) -> str:
    """Lying bars, the longest as long as there is room."""
    longest = max((sum(size for _, size in row.parts) for row in rows), default=0) or 1
    body = "".join(_bar(row, longest) for row in rows)
    return (
        f'<table class="bars" aria-label="{title}"><thead><tr><th scope="col">{heads[0]}<th aria-hidden="true">'
        f'<th scope="col">{heads[1]}<tbody>{body}</table>'
    )


def _bar(row: Bar, longest: float) -> str:
    drawn, left = "", 0.0
    for kind, size in row.parts:
        if size > 0:
            wide = max(100 * size / longest, 0.6)
            drawn += f'<rect class="{kind}" x="{left:.2f}%" width="{wide:.2f}%" height="14" rx="2"/>'
            left += wide
    name = f' title="{row.full_name}"' if row.full_name and row.full_name != row.name else ""
    return (
        f'<tr><th scope="row"{name}>{row.name}<td class="bar"><svg aria-hidden="true" height="14">'
        f'<g class="at"><rect width="100%"><title>{row.tip}</title></rect></g><g class="drawn">{drawn}</g></svg>'
        f'<td class="n">{row.value}'
    )


def behind(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The numbers of a chart, for who would rather read them."""
    head = "".join(f'<th scope="col">{one}' for one in heads)
    body = "".join(f"<tr><th>{row[0]}{''.join(f'<td>{cell}' for cell in row[1:])}" for row in rows)
    return (
        f"<details><summary>Show as a table</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f'<table class="numbers"><caption>{title}</caption><thead><tr>{head}<tbody>{body}</table></div></details>'
    )


def sortable(title: str, heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str | tuple[str, float]]]) -> str:
    """A table that the page's script can sort by each of its columns.

    A head tells whether its column is of numbers; a cell that says a number in words brings it along.
    """
    head = "".join(f'<th scope="col"{" data-number" if number else ""}>{name}' for name, number in heads)
    body = "".join(f'<tr><th scope="row">{row[0]}{"".join(map(_cell, row[1:]))}' for row in rows)
    return (
        f'<div class="scroll tall" tabindex="0" role="region" aria-label="{title}">'
        f'<table class="numbers sortable"><thead><tr>{head}<tbody>{body}</table></div>'
    )


def _cell(cell: str | tuple[str, float]) -> str:
    return f"<td>{cell}" if isinstance(cell, str) else f'<td data-v="{cell[1]:g}">{cell[0]}'
