"""Which calls are awaited: those are answered with a future, all others with their value at once.

`pack.tool(…)` just gives its value, and `await asyncio.gather(pack.tool(…), …)` runs tools side by side. Which of the
two a call is follows from where its value goes: into an `await` or a `gather`, directly, through names, lists, dicts,
comprehensions and the code's own functions. What can't be followed is answered with a value.

Values are followed backwards: from an `await`, to the expressions that its value may come from. A path says which part
of an expression's value is meant: of `pairs`, in `for name, call in pairs: await call`, it is (ANY, 1).
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

GATHERING = {"gather", "run"}
SAME_ITEMS = {"list", "tuple", "set", "sorted", "reversed", "iter"}
ADDING = {"append": 1, "add": 1, "insert": 1, "appendleft": 1, "setdefault": 1, "extend": 0, "update": 0}
TAKING = {"pop", "popleft", "get", "setdefault"}

DEEPEST = 6  # parts of parts of parts
MOST_STEPS = 100_000  # about a second: nobody's code needs a hundredth of it

BLOCKS = {"body", "orelse", "handlers", "finalbody"}
LOOPS = (ast.For, ast.While, ast.AsyncFor)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*FUNCTIONS, *COMPREHENSIONS, ast.ClassDef)


class Part(Enum):
    """A step from a value to what is awaited, where it is not one known index or key."""

    ANY = "any item"
    CALL = "what a call of it gives"
    DONE = "what a call of it gives, awaited"


ANY, CALL, DONE = Part.ANY, Part.CALL, Part.DONE

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Path = tuple[object, ...]
Span = tuple[int, int]


class Binding(NamedTuple):
    """A value that a name may have, or may have in it: the part of it is where `path` leads, after `depth` steps."""

    value: ast.AST
    path: Path
    scope: int
    place: tuple[int, int]
    blocks: tuple[int, ...]
    depth: int = 0  # steps from the name to the value: 1 after `name.append(value)`
    certain: bool = True  # the name has this value and no other one, from here on


def awaited_calls(tree: ast.Module) -> set[int]:
    """The `id`s of the call nodes whose value reaches an `await`."""
    return _Flow(tree).awaited


def spans(code: str, nodes: Iterable[ast.expr]) -> set[Span]:
    """Where nodes stand, in bytes, which is how the sandbox tells where a call came from."""
    starts = [0]
    for line in code.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    return {
        (starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0))
        for node in nodes
    }


class _Code:
    """The code, read once: where every node stands, what names may stand for, and which calls there are."""

    def __init__(self, tree: ast.Module) -> None:
        self.waits: list[ast.Await | ast.Call] = []
        self.returns: dict[int, list[ast.expr]] = defaultdict(list)
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        self.owner: dict[int, Function] = {}  # of a parameter
        self._names_of: dict[int, list[str]] = defaultdict(list)  # what code calls a function
        self._asyncio = {"asyncio"}
        self._gathering: set[str] = set()
        self._scope: dict[int, int] = {}
        self._outer: dict[int, int] = {}
        self._blocks: dict[int, tuple[int, ...]] = {}
        self._loops: set[int] = set()
        self._comprehensions: set[int] = set()
        self._elsewhere: set[tuple[int, str]] = set()  # global and nonlocal
        self._made: dict[tuple[int, str], list[Binding]] = defaultdict(list)
        self._added: list[tuple[int, str, Binding]] = []
        self._walk(tree)
        self._bindings = self._settled()

    def _walk(self, tree: ast.Module) -> None:
        """Note for every node which scope it is in and which blocks are around it. Not recursive: code is deep."""
        stack: list[tuple[ast.AST, ast.AST, tuple[int, ...]]] = [(tree, tree, ())]
        while stack:
            node, scope, blocks = stack.pop()
            self._scope[id(node)] = id(scope)
            self._blocks[id(node)] = blocks
            self._note(node, scope)
            if isinstance(node, SCOPES):
                self._outer[id(node)] = id(scope)
            if isinstance(node, COMPREHENSIONS):
                self._comprehensions.add(id(node))
            for field in node._fields:
                value = getattr(node, field, None)
                inner = (*blocks, id(value)) if field in BLOCKS else blocks
                if field == "body" and isinstance(node, LOOPS):
                    self._loops.add(id(value))
                around = node if _is_inside(node, field) else scope
                if isinstance(value, list):
                    stack += [(child, around, inner) for child in value if isinstance(child, ast.AST)]
                elif isinstance(value, ast.AST):
                    stack.append((value, around, inner))

    def _note(self, node: ast.AST, scope: ast.AST) -> None:
        match node:
            case ast.Assign(value=value):
                for target in node.targets:
                    self._bind(target, value, (), node, scope)
            case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                self._bind(node.target, value, (), node, scope)
            case ast.AugAssign(value=value):  # `xs += [call]` keeps what was there
                self._bind(node.target, value, (), node, scope, certain=False)
            case ast.For(iter=value) | ast.AsyncFor(iter=value) | ast.comprehension(iter=value):
                self._bind(node.target, value, (ANY,), value, scope)
            case ast.Return(value=ast.expr() as value):
                self.returns[id(scope)].append(value)
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                self._elsewhere.update((id(scope), name) for name in names)
            case ast.Call(func=function):
                self.waits.append(node)
                self.calls[_name_of(function)].append(node)
                if isinstance(function, ast.Attribute) and function.attr in ADDING and node.args:
                    self._add(function.value, node.args[-1], ADDING[function.attr], node, scope)
            case ast.Await():
                self.waits.append(node)
            case _:
                pass
        if isinstance(node, FUNCTIONS):
            self._function(node, scope)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import) and alias.name == "asyncio":
                self._asyncio.add(alias.asname or alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module == "asyncio" and alias.name in GATHERING:
                self._gathering.add(alias.asname or alias.name)

    def _function(self, node: Function, scope: ast.AST) -> None:
        arguments = node.args
        all_of_them = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg]
        for parameter in filter(None, all_of_them):
            self.owner[id(parameter)] = node
            self._made[id(node), parameter.arg].append(
                Binding(parameter, (), id(node), _start(node), self._blocks[id(node)])
            )
        if isinstance(node, ast.Lambda):
            self.returns[id(node)].append(node.body)
        else:
            name, inside = (f".{node.name}", 0) if isinstance(scope, ast.ClassDef) else (node.name, id(scope))
            self._names_of[id(node)].append(name)
            self._made[inside, name].append(Binding(node, (), id(scope), _start(node), self._blocks[id(node)]))

    def _bind(
        self, target: ast.AST, value: ast.expr, path: Path, where: ast.AST, scope: ast.AST, certain: bool = True
    ) -> None:
        binding = Binding(value, path, id(scope), _end(where), self._blocks.get(id(where), ()), certain=certain)
        match target:
            case ast.Name(id=name):
                if isinstance(value, ast.Lambda) and not path:
                    self._names_of[id(value)].append(name)
                inside = self._function_around(scope) if isinstance(where, ast.NamedExpr) else id(scope)
                self._made[inside, name].append(binding)
            case ast.Attribute(attr=attr):  # of whatever object: one attribute of that name is like another
                self._made[0, f".{attr}"].append(binding)
            case ast.Subscript(value=inner):
                self._add(inner, value, 1, where, scope)
            case ast.Starred(value=inner):
                self._bind(inner, value, path[:-1], where, scope, certain)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                plain = not any(isinstance(one, ast.Starred) for one in targets)
                for index, one in enumerate(targets):
                    self._bind(one, value, (*path, index if plain else ANY), where, scope, certain)
            case _:
                pass

    def _add(self, holder: ast.expr, value: ast.expr, depth: int, where: ast.AST, scope: ast.AST) -> None:
        """`holder` has the value in it, as do the names that it is itself a part of: `d[key].append(value)`."""
        path: Path = ()
        while not isinstance(holder, ast.Name | ast.Attribute):
            match holder:
                case ast.Subscript(value=inner):
                    holder, depth = inner, depth + 1
                case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in TAKING:
                    holder, depth = inner, depth + 1
                case _:
                    return
        binding = Binding(value, path, id(scope), _end(where), self._blocks.get(id(where), ()), depth, certain=False)
        if isinstance(holder, ast.Attribute):
            self._made[0, f".{holder.attr}"].append(binding)
        else:
            self._added.append((id(scope), holder.id, binding))

    def _function_around(self, scope: ast.AST) -> int:
        """A walrus in a comprehension binds outside of it."""
        around = id(scope)
        while around in self._comprehensions:
            around = self._outer[around]
        return around

    def _settled(self) -> dict[tuple[int, str], list[Binding]]:
        """What names may stand for, each in the scope that it belongs to."""
        found: dict[tuple[int, str], list[Binding]] = defaultdict(list)
        elsewhere = [key for key in self._elsewhere if key in self._made]
        for scope, name in elsewhere:
            self._added += [(scope, name, binding) for binding in self._made.pop((scope, name))]
        for key, bindings in self._made.items():
            found[key] += bindings
        for scope, name, binding in self._added:
            found[self._home(scope, name) or (scope, name), name if False else name].append(binding) if False else None
            found[(self._home(scope, name), name)].append(binding)
        for bindings in found.values():
            bindings.sort(key=lambda one: one.place)
        return found
