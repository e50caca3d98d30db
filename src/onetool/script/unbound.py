"""Methods of built-in types as functions: `sorted(names, key=str.lower)`, `map(str.strip, lines)`.

The sandbox has methods of values, but none of types; a lambda says the same.
"""

from collections.abc import Iterator
from types import MethodDescriptorType

from onetool.script.places import Edit
from onetool.script.scan import Scan

TYPES = {kind.__name__: kind for kind in (str, bytes, int, float, list, tuple, dict, set, frozenset)}


def unbound_methods(scan: Scan) -> Iterator[Edit]:
    """Each of them as a lambda, where the type's name has not been given another meaning."""
    for node in scan.attributes:
        word = getattr(node.value, "id", None)
        if word not in TYPES or word in scan.bound or word in scan.imported or node.lineno != node.end_lineno:
            continue
        if isinstance(getattr(TYPES[word], node.attr, None), MethodDescriptorType):
            yield Edit(*scan.places.of(node), f"(lambda _, *a, **k: _.{node.attr}(*a, **k))")
