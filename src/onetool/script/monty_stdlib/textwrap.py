"""textwrap: wraps, indents and dedents paragraphs."""

import re

_BLANKS = "\t\n\x0b\x0c\r "


def _letter(text, at):
    return at >= 0 and (text[at : at + 1].isalpha() or text[at : at + 1] == "_")


def _word(text, at):
    return text[at : at + 1].isalnum() or text[at : at + 1] == "_"


def _parts(word):
    """Split after hyphens between letters (not in `-x` or `1-2`), and before and after dashes (`--`) between words.

    This uses no regular expression, because the sandbox needs milliseconds to compile one with classes of letters.
    """
    parts, start, at = [], 0, word.find("-")
    while at >= 0:
        end = at + 1
        while word.startswith("-", end):
            end += 1
        if end - at > 1:
            if at > 0 and (_word(word, at - 1) or word[at - 1] in "!\"'&.,?") and _word(word, end):
                parts += [word[start:at], word[at:end]]
                start = end
        elif (
            _letter(word, at - 1)
            and (_letter(word, at - 2) or (word.startswith("-", max(at - 2, 0)) and _letter(word, at - 3)))
            and _letter(word, end)
            and (_letter(word, end + 1) or (word.startswith("-", end + 1) and _letter(word, end + 2)))
        ):
            parts.append(word[start:end])
            start = end
        at = word.find("-", end)
    return [*parts, word[start:]]


class TextWrapper:
    def __init__(
        self,
        width=70,
        initial_indent="",
        subsequent_indent="",
        expand_tabs=True,
        replace_whitespace=True,
        fix_sentence_endings=False,
        break_long_words=True,
        drop_whitespace=True,
        break_on_hyphens=True,
        tabsize=8,
        *,
        max_lines=None,
        placeholder=" [...]",
    ):
        self.width, self.tabsize, self.max_lines, self.placeholder = width, tabsize, max_lines, placeholder
        self.initial_indent, self.subsequent_indent = initial_indent, subsequent_indent
        self.expand_tabs, self.replace_whitespace = expand_tabs, replace_whitespace
        self.fix_sentence_endings, self.drop_whitespace = fix_sentence_endings, drop_whitespace
        self.break_long_words, self.break_on_hyphens = break_long_words, break_on_hyphens

    def _pieces(self, text):
        """Return the units of wrapping: words, parts after a hyphen, dashes, and the whitespace between them."""
        if self.expand_tabs:
            text = text.expandtabs(self.tabsize)
        if self.replace_whitespace:
            for blank in _BLANKS:
                text = text.replace(blank, " ")
        pieces = re.split("([\t\n\x0b\x0c\r ]+)", text)
        if self.break_on_hyphens:
            pieces = [part for piece in pieces for part in (_parts(piece) if "-" in piece else [piece])]
        pieces = [piece for piece in pieces if piece]
        if self.fix_sentence_endings:
            for i in range(1, len(pieces)):
                if pieces[i] == " " and re.search("[a-z][.!?][\"']?$", pieces[i - 1]):
                    pieces[i] = "  "
        return pieces

    def _fits(self, piece, room):
        """Return how much of a word longer than a line goes on this line: up to a hyphen, if there is one."""
        if self.break_on_hyphens and len(piece) > room:
            hyphen = piece.rfind("-", 0, room)
            if hyphen > 0 and piece[:hyphen].strip("-"):
                return hyphen + 1
        return room

    def wrap(self, text):
        if self.width <= 0:
            raise ValueError(f"invalid width {self.width!r} (must be > 0)")
        if self.max_lines is not None:
            first = self.subsequent_indent if self.max_lines > 1 else self.initial_indent
            if len(first) + len(self.placeholder.lstrip(_BLANKS)) > self.width:
                raise ValueError("placeholder too large for max width")
        left = self._pieces(text)[::-1]
        lines = []
        while left:
            indent = self.subsequent_indent if lines else self.initial_indent
            width = self.width - len(indent)
            if self.drop_whitespace and lines and not left[-1].strip(_BLANKS):
                left.pop()
            line, used = [], 0
            while left and used + len(left[-1]) <= width:
                line.append(left.pop())
                used += len(line[-1])
            if left and len(left[-1]) > width:
                room = 1 if width < 1 else width - used
                if self.break_long_words:
                    piece = left.pop()
                    cut = self._fits(piece, room)
                    line.append(piece[:cut])
                    if piece[cut:]:
                        left.append(piece[cut:])
                elif not line:
                    line.append(left.pop())
                used = len("".join(line))
            if self.drop_whitespace and line and not line[-1].strip(_BLANKS):
                used -= len(line.pop())
            if not line:
                continue
            last = not left or (self.drop_whitespace and len(left) == 1 and not left[0].strip(_BLANKS))
            if self.max_lines is None or len(lines) + 1 < self.max_lines or (last and used <= width):
                lines.append(indent + "".join(line))
                continue
            while line and (not line[-1].strip(_BLANKS) or used + len(self.placeholder) > width):
                used -= len(line.pop())
            if line:
                lines.append(indent + "".join(line) + self.placeholder)
            elif lines and len(lines[-1].rstrip(_BLANKS)) + len(self.placeholder) <= self.width:
                lines[-1] = lines[-1].rstrip(_BLANKS) + self.placeholder
            else:
                lines.append(indent + self.placeholder.lstrip(_BLANKS))
            break
        return lines

    def fill(self, text):
        return "\n".join(self.wrap(text))


def wrap(text, width=70, **kwargs):
    return TextWrapper(width=width, **kwargs).wrap(text)


def fill(text, width=70, **kwargs):
    return TextWrapper(width=width, **kwargs).fill(text)


def shorten(text, width, **kwargs):
    if "max_lines" not in kwargs:
        kwargs["max_lines"] = 1
    return TextWrapper(width=width, **kwargs).fill(" ".join(text.strip(_BLANKS).split()))


def dedent(text):
    lines = ["" if not line.strip(" \t") else line for line in text.split("\n")]
    margin = None
    for line in lines:
        if line:
            own = line[: len(line) - len(line.lstrip(" \t"))]
            margin = own if margin is None else margin
            while not own.startswith(margin):
                margin = margin[:-1]
    size = len(margin or "")
    return "\n".join([line[size:] for line in lines])


def indent(text, prefix, predicate=None):
    lines = text.splitlines(True)
    return "".join([prefix + line if (predicate(line) if predicate else line.strip()) else line for line in lines])
