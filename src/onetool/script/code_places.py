"""CodePlace: where something stands in the text that was sent, as an editor marks it.

Code is taken out of its text before it runs: fences and indentation are removed. What is found in the code is told by
its place in the text, or not at all where that can't be said, as with the code of a snippet.
"""

import ast

import msgspec


class CodePlace(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Lines and columns begin at 1; columns count characters, and the end is the first one behind it."""

    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


class CodeFault(CodePlace, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that is wrong with code, and where."""

    message: str

    @classmethod
    def at(cls, message: str, place: CodePlace | None, line: int) -> "CodeFault":
        return cls(message=message, **({"line": line} if place is None else msgspec.structs.asdict(place)))


class CodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of code before it runs: what is wrong, and the tools that it calls."""

    errors: list[CodeFault] = []
    calls: list[str] = []


def place_of_line(code: str, line: int) -> CodePlace:
    """A whole line, without its indentation."""
    lines = code.split("\n")
    if not 0 < line <= len(lines) or not (text := lines[line - 1].rstrip()):
        return CodePlace(line=line)
    indent = len(text) - len(text.lstrip())
    return CodePlace(line=line, column=indent + 1, end_line=line, end_column=len(text) + 1)


def place_of_node(code: str, node: ast.expr | ast.stmt) -> CodePlace:
    lines, last = code.split("\n"), node.end_lineno or node.lineno
    return CodePlace(
        line=node.lineno,
        column=_column(lines[node.lineno - 1], node.col_offset),
        end_line=last,
        end_column=_column(lines[last - 1], node.end_col_offset or 0),
    )


def place_of_syntax_error(code: str, error: SyntaxError) -> CodePlace | None:
    if not error.lineno:
        return None
    if not error.offset or error.offset < 1:
        return place_of_line(code, error.lineno)
    end_line, end_column = error.end_lineno or error.lineno, error.end_offset or 0
    if (end_line, end_column) <= (error.lineno, error.offset):  # it has none
        end_line, end_column = error.lineno, error.offset + 1
    return CodePlace(line=error.lineno, column=error.offset, end_line=end_line, end_column=end_column)


def in_sent_text(text: str, code: str, place: CodePlace) -> CodePlace | None:
    """The place in the text that the code was taken out of."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if text == code:
        return place
    at = text.find(code)
    if at >= 0 and (at == 0 or text[at - 1] == "\n"):
        return _moved(place, text.count("\n", 0, at))
    if text.count("\n") == code.count("\n"):  # its indentation was removed
        return place_of_line(text, place.line)
    return None


def _moved(place: CodePlace, lines: int) -> CodePlace:
    end = None if place.end_line is None else place.end_line + lines
    return msgspec.structs.replace(place, line=place.line + lines, end_line=end)


def _column(line: str, offset: int) -> int:
    """Python counts the bytes of UTF-8."""
    return len(line.encode()[:offset].decode(errors="ignore")) + 1
