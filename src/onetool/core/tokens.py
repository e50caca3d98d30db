"""About how many tokens a text is, without a vocabulary.

Two guesses, of which the larger counts: four characters of ASCII, or one other, are about a token, which is right for
prose; and three of four pieces are one (a word, three digits, a sign), which is nearer where there are many signs.
"""

import re

_PIECE = re.compile(r"[A-Za-z]{1,7}|[0-9]{1,3}|[^\sA-Za-z0-9]|\n")


def tokens(text: str) -> int:
    plain = sum(map(str.isascii, text))
    return max(-(-plain // 4) + len(text) - plain, 3 * len(_PIECE.findall(text)) // 4)


def cut_to(text: str, most: int) -> str:
    """The text, or as much of it as so many tokens hold."""
    if tokens(text) <= most:
        return text
    fits, too_long = 0, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if tokens(f"{text[:middle]}…") <= most:
            fits = middle
        else:
            too_long = middle
    return f"{text[:fits].rstrip()}…"
