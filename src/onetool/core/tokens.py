"""About how many tokens a text is, without a vocabulary: four characters of ASCII, or one other, are about one."""


def tokens(text: str) -> int:
    plain = sum(map(str.isascii, text))
    return -(-plain // 4) + len(text) - plain


def cut_to(text: str, most: int) -> str:
    """The text, or as much of it as so many tokens hold."""
    if tokens(text) <= most:
        return text
    room = 4 * most
    for at, char in enumerate(text):
        room -= 1 if char.isascii() else 4
        if room < 4:
            return f"{text[:at].rstrip()}…"
    return text
