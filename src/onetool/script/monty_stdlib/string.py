"""string: character constants, capwords, and Template."""

import re

ascii_lowercase = "abcdefghijklmnopqrstuvwxyz"
ascii_uppercase = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ascii_letters = ascii_lowercase + ascii_uppercase
digits = "0123456789"
hexdigits = digits + "abcdef" + "ABCDEF"
octdigits = "01234567"
punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
whitespace = " \t\n\r\x0b\x0c"
printable = digits + ascii_letters + punctuation + whitespace

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_PLACE = "\\$(?:(\\$)|(" + _NAME + ")|\\{(" + _NAME + ")\\}|)"


def capwords(s, sep=None):
    return (" " if sep is None else sep).join([word.capitalize() for word in s.split(sep)])


class Template:
    def __init__(self, template):
        self.template = template

    def __repr__(self):
        return f"Template({self.template!r})"

    def _filled(self, values, safe):
        parts, end = [], 0
        for found in re.finditer(_PLACE, self.template):
            parts.append(self.template[end : found.start()])
            end = found.end()
            name = found.group(2) or found.group(3)
            if found.group(1):
                parts.append("$")
            elif name is None and not safe:
                before = self.template[: found.start()]
                line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
                raise ValueError(f"Invalid placeholder in string: line {line}, col {column}")
            elif name is None or (safe and name not in values):
                parts.append(found.group())
            else:
                parts.append(str(values[name]))
        return "".join(parts) + self.template[end:]

    def substitute(self, mapping=(), /, **kws):
        return self._filled({**dict(mapping), **kws}, False)

    def safe_substitute(self, mapping=(), /, **kws):
        return self._filled({**dict(mapping), **kws}, True)

    def get_identifiers(self):
        names = [found.group(2) or found.group(3) for found in re.finditer(_PLACE, self.template)]
        return list(dict.fromkeys([name for name in names if name]))

    def is_valid(self):
        return all(found.group() != "$" for found in re.finditer(_PLACE, self.template))
