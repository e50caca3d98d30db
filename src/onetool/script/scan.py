"""What code says of itself before it runs: which names it uses, and which of them it defines."""

import ast
import builtins
from collections import Counter
from functools import cached_property

from onetool.script.awaits import Span, awaited_calls, spans
from onetool.script.reading import parse

BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__"}
# With these, code can make names that its tree does not show.
MAKING_NAMES = frozenset({"exec", "eval", "globals", "setattr", "__import__"})


class Scan:
    """The tree of some code and what follows from it. `tree` is None where only the sandbox can parse it."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.tree = parse(code)
        self.nodes = list(ast.walk(self.tree)) if self.tree is not None else []

    @cached_property
    def used(self) -> set[str]:
        """Every name that is read anywhere."""
        return {node.id for node in self.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}

    @cached_property
    def bound(self) -> Counter[str]:
        """Every name that the code gives a meaning to, in whatever scope, and how often; imports apart."""
        names: Counter[str] = Counter()
        for node in self.nodes:
            names.update(_names_bound_by(node))
        return names

    @cached_property
    def imported(self) -> dict[str, str]:
        """The names that imports bind, and what they bind: `np` is `numpy`, `mean` is `statistics.mean`."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.partition(".")[0]] = alias.name
            elif isinstance(node, ast.ImportFrom):
                found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
        return found

    @cached_property
    def makes_names(self) -> bool:
        return not MAKING_NAMES.isdisjoint(self.used)

    @cached_property
    def futures(self) -> set[Span]:
        """Where the calls stand that are answered with a future."""
        if self.tree is None or not any(isinstance(node, ast.Await | ast.AsyncFunctionDef) for node in self.nodes):
            return set()
        awaited = awaited_calls(self.tree)
        return spans(self.code, (node for node in self.nodes if isinstance(node, ast.Call) and id(node) in awaited))


def _names_bound_by(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.arg(arg=name):
            return [name]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
        case _:
            return []
