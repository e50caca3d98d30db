"""Reads the text format of Prometheus, version 0.0.4, and refuses what Prometheus would refuse."""

import re

LINE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\n"])*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\[\\n"])*)"')
ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


def read_exposition(text):
    """Return name -> labels -> value. Families must be whole, typed, and without a line that is there twice."""
    assert text.endswith(b"\n")
    found, types, current = {}, {}, None
    for line in text.decode().splitlines():
        if line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current not in types, f"{current} is there twice"
            types[current] = kind
        elif not line.startswith("# HELP "):
            name, labels, value = LINE.fullmatch(line).groups()
            suffixes = ("_bucket", "_sum", "_count") if types[current] == "histogram" else ("",)
            assert name in [current + suffix for suffix in suffixes], f"{name} stands below {current}"
            assert types[current] != "counter" or name.endswith("_total"), name
            key = tuple((k, re.sub(r"\\.", lambda one: ESCAPES[one[0]], v)) for k, v in LABEL.findall(labels or ""))
            assert key not in found.setdefault(name, {}), line
            found[name][key] = float(value)
    return found
