"""Everyday Python that the sandbox takes in another form only: said there in that form.

- `sorted(names, key=str.lower)`: it has methods of values, but none of types; a lambda says the same.
- `max(counts, key=counts.get)`: nor are methods of values functions; a lambda, again.
- `next((x for x in xs if x), None)`: its generator expressions are lists, which have to be made iterators first.
- `raise ValueError(error)`: its exceptions take one text.
"""

import ast
import builtins
from collections.abc import Iterator
from types import MethodDescriptorType

from onetool.script.places import Edit
from onetool.script.scan import Scan

TYPES = {kind.__name__: kind for kind in (str, bytes, int, float, list, tuple, dict, set, frozenset)}
EXCEPTIONS = frozenset(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
)


def idioms(scan: Scan) -> Iterator[Edit]:
    """What is to be said otherwise, where a name has not been given another meaning."""
    for node in scan.attributes:
        if _is_unbound_method(node, scan):
            yield Edit(*scan.places.of(node), f"(lambda _, *a, **k: _.{node.attr}(*a, **k))")
    for call in scan.calls:
        yield from _methods_as_functions(call, scan)
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name in scan.bound or name in scan.imported or call.keywords or not call.args:
            continue
        if name == "next" and isinstance(call.args[0], ast.GeneratorExp):
            yield from _within(scan, call, call.args[:1], "iter")
        elif name in EXCEPTIONS and not _is_one_text(call.args):
            yield from _within(scan, call, call.args, "str")


def _is_unbound_method(node: ast.Attribute, scan: Scan) -> bool:
    word = getattr(node.value, "id", None)
    if word not in TYPES or word in scan.bound or word in scan.imported or node.lineno != node.end_lineno:
        return False
    return isinstance(getattr(TYPES[word], node.attr, None), MethodDescriptorType)


def _methods_as_functions(call: ast.Call, scan: Scan) -> Iterator[Edit]:
    """`key=counts.get`, `map(counts.get, words)`: of a value that the code made, and called with what comes."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "key"]
    if isinstance(call.func, ast.Name) and call.func.id in ("map", "filter"):
        given += call.args[:1]
    for node in given:
        match node:
            case ast.Attribute(value=ast.Name(id=word), attr=attr) if word in scan.bound and word not in scan.imported:
                if node.lineno == node.end_lineno:
                    yield Edit(*scan.places.of(node), f"(lambda *a: {word}.{attr}(*a))")
            case _:
                pass


def _is_one_text(args: list[ast.expr]) -> bool:
    if any(isinstance(arg, ast.Starred) for arg in args):
        return True  # nobody knows how many: left as it is
    return len(args) == 1 and (
        isinstance(args[0], ast.JoinedStr) or (isinstance(args[0], ast.Constant) and isinstance(args[0].value, str))
    )


def _within(scan: Scan, call: ast.Call, nodes: list[ast.expr], function: str) -> Iterator[Edit]:
    """Put a function around arguments that stand beside each other; around several of them as one tuple."""
    (start, _), (_, end) = scan.places.of(nodes[0]), scan.places.of(nodes[-1])
    if len(nodes) > 1 and not _is_bare(scan, call, start, end):
        return  # `ValueError((a), b)`: where the arguments begin and end is hard to say
    before, after = (f"{function}((", "))") if len(nodes) > 1 else (f"{function}(", ")")
    if end == scan.places.of(call)[1]:  # `next(x for x in xs)`: the brackets of the call are those of the expression
        before = f"({function}"
    yield Edit(start, start, before)
    yield Edit(end, end, after)


def _is_bare(scan: Scan, call: ast.Call, start: int, end: int) -> bool:
    """Whether nothing but the call's own brackets stands around its arguments."""
    data = scan.code.encode()
    opens = data[scan.places.of(call.func)[1] : start]
    return opens.count(b"(") == 1 and data[end : scan.places.of(call)[1]].count(b")") == 1
