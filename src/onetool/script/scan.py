"""What code says of itself before it runs: which names it uses, which of them it defines, and what it awaits.

The tree is walked once, here; who wants to know something of the code looks at what was found.
"""

import ast
from collections import Counter
from functools import cached_property

from onetool.script.awaits import awaited_calls
from onetool.script.places import Places, Span
from onetool.script.reading import parse

# With these, code can make names that its tree does not show.
MAKING_NAMES = frozenset({"exec", "eval", "globals", "setattr", "__import__"})
_NAME_OF = {
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.arg: "arg",
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
}


class Scan:
    """The tree of some code and what follows from it. `tree` is None where only the sandbox can parse it."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.places = Places(code)
        self.tree = parse(code)
        self.calls: list[ast.Call] = []
        self.assignments: list[ast.Assign] = []
        self.attributes: list[ast.Attribute] = []
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.used: set[str] = set()
        self.bound: Counter[str] = Counter()  # in whatever scope, and how often; imports apart
        self.loses_lines = False  # it has a statement that an error leaves as if it came from there
        self._waits = False
        if self.tree is not None:
            self._walk(self.tree)

    def _walk(self, tree: ast.Module) -> None:
        nodes: list[ast.AST] = [tree]
        for node in nodes:  # which grows while it is walked
            self._note(node)
            for field in node._fields:
                value = getattr(node, field, None)
                if type(value) is list:
                    nodes += [child for child in value if isinstance(child, ast.AST)]
                elif isinstance(value, ast.arguments) or (isinstance(value, ast.AST) and value._attributes):
                    nodes.append(value)  # what has no place in the text are words like Load and Add

    def _note(self, node: ast.AST) -> None:
        kind = type(node)
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                self.used.add(node.id)
            else:
                self.bound[node.id] += 1
        elif isinstance(node, ast.Call):
            self.calls.append(node)
        elif isinstance(node, ast.Attribute):
            self.attributes.append(node)
        elif isinstance(node, ast.Assign):
            self.assignments.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.imports.append(node)
        elif kind in _NAME_OF:
            if name := getattr(node, _NAME_OF[kind]):
                self.bound[name] += 1
            self._waits = self._waits or kind is ast.AsyncFunctionDef
        elif kind is ast.Await:
            self._waits = True
        elif kind is ast.Try or kind is ast.With:
            self.loses_lines = True

    @cached_property
    def imported(self) -> dict[str, str]:
        """The names that imports bind, and what they bind: `np` is `numpy`, `mean` is `statistics.mean`."""
        found: dict[str, str] = {}
        for node in self.imports:
            for alias in node.names:
                if isinstance(node, ast.ImportFrom):
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                else:
                    found[alias.asname or alias.name.partition(".")[0]] = alias.name
        return found

    def _modules(self) -> set[str]:
        return {name.partition(".")[0] for name in self.imported.values()}

    @cached_property
    def makes_names(self) -> bool:
        """Whether there may be names that the tree does not show."""
        return "*" in self.imported or not MAKING_NAMES.isdisjoint(self.used)

    @cached_property
    def futures(self) -> set[Span]:
        """Where the calls stand that are answered with a future."""
        if self.tree is None or not (self._waits or "asyncio" in self._modules()):
            return set()
        awaited = awaited_calls(self.tree)
        return {self.places.of(call) for call in self.calls if id(call) in awaited}
