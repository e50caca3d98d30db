"""A table of measurements."""

from collections.abc import Sequence


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    print(f"\n{title}")
    for row in (columns, ["-" * width for width in widths], *rows):
        cells = [
            cell.ljust(width) if not index else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())
