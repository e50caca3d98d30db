"""fnmatch: matches names against patterns with *, ? and [sets]."""

import re


def _pattern(pat):
    parts, i = [], 0
    while i < len(pat):
        c = pat[i]
        i += 1
        end = pat.find("]", i + 1 + pat.startswith("!", i)) if c == "[" else -1
        if c == "*":
            parts.append(".*")
        elif c == "?":
            parts.append(".")
        elif end < 0:
            parts.append(re.escape(c))
        else:
            parts.append(_set(pat[i:end]))
            i = end + 1
    return re.compile("".join(parts), re.DOTALL)


def _set(body):
    """Return a set's characters and ranges; a range from high to low is empty."""
    other = body.startswith("!")
    body = body[1:] if other else body
    items, i = [], 0
    while i < len(body):
        if i + 2 < len(body) and body[i + 1] == "-":
            if body[i] <= body[i + 2]:
                items.append(f"\\U{ord(body[i]):08x}-\\U{ord(body[i + 2]):08x}")
            i += 3
        else:
            items.append(f"\\U{ord(body[i]):08x}")
            i += 1
    if not items:
        return "." if other else "(?!)"
    return ("[^" if other else "[") + "".join(items) + "]"


def fnmatchcase(name, pat):
    return _pattern(pat).fullmatch(name) is not None


fnmatch = fnmatchcase


def filter(names, pat):
    pattern = _pattern(pat)
    return [name for name in names if pattern.fullmatch(name)]
