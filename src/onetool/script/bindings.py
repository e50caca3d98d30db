"""Bindings: the values that a name may have at the place where it is used, found by static analysis."""

import ast
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

BLOCKS = {"body", "orelse", "handlers", "finalbody"}
LOOPS = (ast.For, ast.While, ast.AsyncFor)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Node types of interest; others are operators and contexts like Add and Load.
PLACED = (ast.expr, ast.stmt, ast.comprehension, ast.arguments, ast.arg, ast.keyword, ast.ExceptHandler, ast.match_case,
          ast.withitem)  # fmt: skip
# Methods that add their last argument to their object: as an item (1), or item by item (0).
ADDING = {"append": 1, "add": 1, "insert": 1, "appendleft": 1, "setdefault": 1, "extend": 0, "update": 0}
TAKING = {"pop", "popleft", "get", "setdefault"}
ATTRIBUTES = 0  # the scope of all attributes: those with the same name are treated as one

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class PathStep(Enum):
    """A step from a value to a part of it that is not a known index or key."""

    ANY = "any item"
    CALL = "the result of a call"
    DONE = "the awaited result of a call"


ANY = PathStep.ANY
Path = tuple[object, ...]
Position = tuple[int, int]
Blocks = tuple[int, ...]


class Binding(NamedTuple):
    """A value that a name may have: the part of `value` that `path` leads to."""

    value: ast.AST
    path: Path
    scope: int
    place: Position
    blocks: Blocks
    depth: int = 0  # steps from the name to the value: 1 after `name.append(value)`
    key: object = ANY  # the last of these steps
    certain: bool = True  # whether it replaces all earlier values of the name


class Bindings:
    """The bindings in some code, with its functions and calls."""

    def __init__(self, tree: ast.Module) -> None:
        self.starts: list[ast.Await | ast.Call | ast.Import | ast.ImportFrom] = []  # where values are followed from
        self.returns: dict[int, list[ast.expr]] = defaultdict(list)
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        self.owner: dict[int, Function] = {}  # the function of a parameter
        self.names_of: dict[int, list[str]] = defaultdict(list)  # the names of a function
        self.looked_at = 0
        self._module = id(tree)
        self._scope: dict[int, int] = {}
        self._outer: dict[int, int] = {}
        self._blocks: dict[int, Blocks] = {}
        self._loops: set[int] = set()
        self._branches: dict[int, Blocks] = {}
        self._comprehensions: set[int] = set()
        self._declared: set[tuple[int, str]] = set()  # names declared global or nonlocal
        self._bindings: dict[tuple[int, str], list[Binding]] = defaultdict(list)
        self._from_elsewhere: dict[tuple[int, str], list[Binding]] = {}  # bound in a function nested in the name's own
        self._added: list[tuple[str, Binding]] = []
        self._walk(tree)
        self._settle()

    def of_attribute(self, node: ast.Attribute) -> list[Binding]:
        """Return the possible values of an attribute, if the code itself created its object."""
        if isinstance(node.value, ast.Name) and self._home(self._scope[id(node)], node.value.id) is None:
            return []
        return self._bindings.get((ATTRIBUTES, f".{node.attr}"), [])

    def of_name(self, node: ast.Name) -> list[Binding]:
        """Return the possible values of a name: from the last certain binding on, including those around a loop."""
        scope = self._scope[id(node)]
        home = self._home(scope, node.id)
        if home is None:
            return []
        if self._function(scope) != home:  # in a comprehension or nested function, which may run at any time
            return self._bindings[home, node.id]
        reaching = list(self._reaching(self._bindings[home, node.id], _start(node), self._blocks[id(node)]))
        return reaching + self._from_elsewhere.get((home, node.id), [])

    def _reaching(self, bindings: list[Binding], place: Position, here: Blocks) -> Iterator[Binding]:
        now = bisect_right(bindings, place, key=lambda binding: binding.place)
        passed: set[Blocks] = set()  # blocks in which every path binds the name
        certain = None
        for index in range(now - 1, -1, -1):
            self.looked_at += 1
            binding = bindings[index]
            yield binding
            if binding.certain:
                certain = self._enclosing(binding.blocks, passed)
                if here[: len(certain)] == certain:
                    break
                certain = None
        loops = [block for block in here if block in self._loops]
        for index in range(now, len(bindings) if loops else now):
            self.looked_at += 1
            binding = bindings[index]
            around = [loop for loop in loops if loop in binding.blocks]
            if around and not (certain and around[-1] in certain):
                yield binding

    def _enclosing(self, blocks: Blocks, passed: set[Blocks]) -> Blocks:
        """Return the outermost blocks in which every path has a binding: both branches of an `if` make up one."""
        passed.add(blocks)
        while blocks and all((*blocks[:-1], branch) in passed for branch in self._branches.get(blocks[-1], (None,))):
            blocks = blocks[:-1]
            passed.add(blocks)
        return blocks

    def _home(self, scope: int | None, name: str) -> int | None:
        """Return the scope that a name belongs to, as seen from `scope`; None if nothing binds it."""
        while scope is not None:
            if (scope, name) in self._bindings:
                return scope
            scope = self._outer.get(scope)
        return None

    def _function(self, scope: int) -> int:
        while scope in self._comprehensions:
            scope = self._outer[scope]
        return scope

    # Reading

    def _walk(self, tree: ast.Module) -> None:
        """Record the scope of every node and the blocks around it. Not recursive, since code can be deep."""
        stack: list[tuple[ast.AST, ast.AST, Blocks]] = [(tree, tree, ())]
        first: set[int] = set()
        while stack:
            node, scope, blocks = stack.pop()
            self._scope[id(node)] = id(scope)
            self._blocks[id(node)] = blocks
            if isinstance(node, (*FUNCTIONS, *COMPREHENSIONS, ast.ClassDef)):
                self._outer[id(node)] = id(scope)
            if isinstance(node, COMPREHENSIONS):
                self._comprehensions.add(id(node))
                first.add(id(node.generators[0]))
                stack.append((node.generators[0].iter, scope, blocks))  # evaluated in the enclosing scope
            self._note(node, scope)
            for field in node._fields:
                value = getattr(node, field, None)
                if not isinstance(value, list | ast.AST) or (field == "iter" and id(node) in first):
                    continue
                inner = (*blocks, id(value)) if field in BLOCKS else blocks
                if field == "body" and isinstance(node, LOOPS):
                    self._loops.add(id(value))
                if field == "finalbody":
                    self._branches[id(value)] = (id(value),)
                is_inner = isinstance(node, COMPREHENSIONS) or (
                    isinstance(node, (*FUNCTIONS, ast.ClassDef)) and field in ("body", "args")
                )
                around = node if is_inner else scope
                children = value if isinstance(value, list) else (value,)
                stack += [(child, around, inner) for child in children if isinstance(child, PLACED)]

    def _note(self, node: ast.AST, scope: ast.AST) -> None:
        match node:
            case ast.Assign(value=value):
                for target in node.targets:
                    self._bind(target, self._binding(value, (), node, scope))
            case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                self._bind(node.target, self._binding(value, (), node, scope))
            case ast.AugAssign(value=value):  # `xs += [call]` keeps the old items
                self._bind(node.target, self._binding(value, (), node, scope)._replace(certain=False))
            case ast.For(iter=value) | ast.AsyncFor(iter=value) | ast.comprehension(iter=value):
                self._bind(node.target, self._binding(value, (ANY,), value, scope, self._blocks[id(node)]))
            case ast.Return(value=ast.expr() as value):
                self.returns[id(scope)].append(value)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                self._declared.update((id(scope), name) for name in names)
            case ast.Call(func=ast.Name(id=name)):
                self.calls[name].append(node)
            case ast.Call(func=ast.Attribute(value=holder, attr=attr)):
                self.calls[f".{attr}"].append(node)
                if attr in ADDING and node.args:
                    binding = self._binding(node.args[-1], (), node, scope)
                    self._add(holder, binding._replace(depth=ADDING[attr], certain=False))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._define(node, scope)
            case ast.If(body=body, orelse=[_, *_] as other):
                self._branch(body, other)
            case ast.With(body=body) | ast.AsyncWith(body=body):
                self._branch(body)
            case ast.Match(cases=[*_, ast.match_case(pattern=ast.MatchAs(pattern=None), guard=None)] as cases):
                self._branch(*(case.body for case in cases))
            case _:
                pass
        if isinstance(node, ast.Await | ast.Call | ast.Import | ast.ImportFrom):
            self.starts.append(node)

    def _branch(self, *blocks: list[ast.stmt]) -> None:
        """Record that exactly one of these blocks runs."""
        for block in blocks:
            self._branches[id(block)] = tuple(map(id, blocks))

    def _binding(
        self, value: ast.AST, path: Path, where: ast.AST, scope: ast.AST, blocks: Blocks | None = None
    ) -> Binding:
        end = getattr(where, "end_lineno", 0), getattr(where, "end_col_offset", 0)
        return Binding(value, path, id(scope), end, self._blocks[id(where)] if blocks is None else blocks)

    def _define(self, node: Function, scope: ast.AST) -> None:
        arguments = node.args
        for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg):
            if parameter is not None:
                self.owner[id(parameter)] = node
                binding = Binding(parameter, (), id(node), _start(node), self._blocks[id(node)])
                self._bindings[id(node), parameter.arg].append(binding)
        binding = Binding(node, (), id(scope), _start(node), self._blocks[id(node)])
        if isinstance(node, ast.Lambda):
            self.returns[id(node)].append(node.body)
        elif isinstance(scope, ast.ClassDef):
            self.names_of[id(node)].append(f".{node.name}")
            self._bindings[ATTRIBUTES, f".{node.name}"].append(binding)
        else:
            self.names_of[id(node)].append(node.name)
            self._bindings[id(scope), node.name].append(binding)

    def _bind(self, target: ast.AST, binding: Binding) -> None:
        match target:
            case ast.Name(id=name):
                if isinstance(binding.value, ast.Lambda):
                    self.names_of[id(binding.value)].append(name)
                self._bindings[binding.scope, name].append(binding)
            case ast.Attribute(attr=attr):
                self._bindings[ATTRIBUTES, f".{attr}"].append(binding)
            case ast.Subscript(value=holder, slice=key):
                self._add(holder, binding._replace(depth=1, key=step(key), certain=False))
            case ast.Starred(value=inner):
                self._bind(inner, binding)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                stars = any(isinstance(item, ast.Starred) for item in targets)
                for index, item in enumerate(targets):
                    ending = () if isinstance(item, ast.Starred) else (ANY if stars else index,)
                    self._bind(item, binding._replace(path=(*binding.path, *ending)))
            case _:
                pass

    def _add(self, holder: ast.expr, binding: Binding) -> None:
        """Record a value for the name whose container it is added to, at any depth: `d[key].append(value)`."""
        while True:
            match holder:
                case ast.Name(id=name):
                    self._added.append((name, binding))
                    return
                case ast.Attribute(attr=attr):
                    self._bindings[ATTRIBUTES, f".{attr}"].append(binding)
                    return
                case ast.Subscript(value=inner):
                    holder = inner
                case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in TAKING:
                    holder = inner
                case _:
                    return
            binding = binding._replace(depth=binding.depth + 1)

    def _settle(self) -> None:
        """Move every binding to the scope of its name, in source order."""
        for scope, name in self._declared:
            for binding in self._bindings.pop((scope, name), []):
                self._bindings[self._home(scope, name) or self._module, name].append(binding)
        for scope, name in [key for key in self._bindings if key[0] in self._comprehensions]:
            bindings = self._bindings.pop((scope, name))
            for binding in bindings:  # a walrus binds in the enclosing function
                self._bindings[scope if binding.path else self._function(scope), name].append(binding)
        for name, binding in self._added:
            if (home := self._home(binding.scope, name)) is not None:  # otherwise the name is a pack
                self._bindings[home, name].append(binding)
        for (home, name), bindings in self._bindings.items():
            bindings.sort(key=lambda binding: binding.place)
            elsewhere = [found for found in bindings if self._function(found.scope) not in (home, ATTRIBUTES)]
            if elsewhere:
                self._from_elsewhere[home, name] = elsewhere


def step(key: ast.AST) -> object:
    """Return the path step of a subscript."""
    if isinstance(key, ast.Constant) and isinstance(key.value, str | int) and key.value is not True:
        return key.value
    return ANY


def _start(node: ast.AST) -> Position:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
