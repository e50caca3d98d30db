"""Which calls are awaited: those are answered with a future, all others with their value at once.

`pack.tool(…)` just gives its value, and `await asyncio.gather(pack.tool(…), …)` runs tools side by side. Which of the
two a call is follows from where its value goes: into an `await` or a `gather`, directly, through names, lists,
comprehensions and the code's own functions. What can't be followed is answered with a value.
"""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

GATHERING = {"gather", "wait_for", "create_task", "ensure_future", "shield", "wait", "as_completed"}
SAME_ITEMS = {"list", "tuple", "set", "sorted", "reversed", "iter", "enumerate"}
ADDING = {"append", "add", "insert", "appendleft", "setdefault"}

BLOCKS = {"body", "orelse", "handlers", "finalbody"}
LOOPS = (ast.For, ast.While, ast.AsyncFor)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Span = tuple[int, int]
Follow = Callable[[ast.expr], None]


class Binding(NamedTuple):
    """A value that a name may have: `name = value`, `for name in value` (an item of it), or `name.append(value)`."""

    value: ast.expr
    kind: str  # "is", "item of", "has"
    where: ast.AST
    blocks: tuple[int, ...]


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


def _runs(node: ast.AST) -> bool:
    """`asyncio.run(…)` awaits without the word."""
    return isinstance(node, ast.Call) and _name_of(node.func) == "run"


def _name_of(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


class _Flow:
    """Follows values backwards from every `await` and `gather` to the calls that they come from."""

    def __init__(self, tree: ast.Module) -> None:
        self.awaited: set[int] = set()
        self._seen: set[tuple[int, str]] = set()
        self._scope: dict[int, int] = {}
        self._blocks: dict[int, tuple[int, ...]] = {}
        self._loops: set[int] = set()
        self._bindings: dict[tuple[int, str], list[Binding]] = defaultdict(list)
        self._functions: dict[str, Function] = {}
        self._owner: dict[int, Function] = {}
        self._returns: dict[int, list[ast.expr]] = defaultdict(list)
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        self._waits: list[ast.Await | ast.Call] = []
        self._walk(tree)
        for node in self._waits:
            self._start(node)

    # Reading the code once

    def _walk(self, tree: ast.Module) -> None:
        """Note for every node which function it is in and which blocks are around it. Not recursive: code is deep."""
        stack: list[tuple[ast.AST, ast.AST, tuple[int, ...]]] = [(tree, tree, ())]
        while stack:
            node, scope, blocks = stack.pop()
            self._scope[id(node)] = id(scope)
            self._blocks[id(node)] = blocks
            self._note(node, scope)
            for field in node._fields:
                value = getattr(node, field, None)
                inner = (*blocks, id(value)) if field in BLOCKS else blocks
                if field == "body" and isinstance(node, LOOPS):
                    self._loops.add(id(value))
                around = node if isinstance(node, FUNCTIONS) and field in ("body", "args") else scope
                if isinstance(value, list):
                    stack += [(child, around, inner) for child in value if isinstance(child, ast.AST)]
                elif isinstance(value, ast.AST):
                    stack.append((value, around, inner))

    def _note(self, node: ast.AST, scope: ast.AST) -> None:
        match node:
            case ast.Assign():
                for target in node.targets:
                    self._bind(target, node.value, "is", node, scope)
            case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                self._bind(node.target, value, "is", node, scope)
            case ast.AugAssign():
                self._bind(node.target, node.value, "is", node, scope, adds=True)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self._bind(node.target, node.iter, "item of", node.iter, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._functions[node.name] = node
            case ast.Return(value=ast.expr() as value):
                self._returns[id(scope)].append(value)
            case ast.Call(func=ast.Name(id=name)):
                self._calls[name].append(node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=[*_, value]) if attr in ADDING:
                self._bindings[id(scope), name].append(self._binding(value, "has", node))
            case _:
                pass
        if isinstance(node, FUNCTIONS):
            self._owner[id(node)] = node
        elif isinstance(node, ast.Await | ast.Call):
            self._waits.append(node)

    def _bind(
        self, target: ast.expr, value: ast.expr, kind: str, where: ast.AST, scope: ast.AST, adds: bool = False
    ) -> None:
        match target:
            case ast.Name(id=name):
                if isinstance(value, ast.Lambda):
                    self._functions[name] = value
                    self._returns[id(value)].append(value.body)
                binding = self._binding(value, kind, where)
                if adds:  # `xs += [call]` keeps what was there
                    binding = binding._replace(blocks=(*binding.blocks, 0))
                self._bindings[id(scope), name].append(binding)
            case ast.Subscript(value=ast.Name(id=name)):
                self._bindings[id(scope), name].append(self._binding(value, "has", where))
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                values = value.elts if isinstance(value, ast.Tuple | ast.List) and kind == "is" else None
                for index, one in enumerate(targets):
                    if values is not None and len(values) == len(targets):
                        self._bind(one, values[index], "is", where, scope)
                    elif isinstance(value, ast.expr):
                        self._bind(one, value, "item of" if kind == "is" else "item of item of", where, scope)
            case _:
                pass

    def _binding(self, value: ast.expr, kind: str, where: ast.AST) -> Binding:
        return Binding(value, kind, where, self._blocks.get(id(where), ()))

    # Following values backwards

    def _start(self, node: ast.Await | ast.Call) -> None:
        if isinstance(node, ast.Await):
            self._await(node.value)
        elif _name_of(node.func) in GATHERING or (_runs(node) and isinstance(node.func, ast.Attribute)):
            for argument in node.args:
                self._await(argument)

    def _await(self, node: ast.expr) -> None:
        """The value of this expression is awaited: where does it come from?"""
        if not self._new(node, "value"):
            return
        match node:
            case ast.Starred(value=inner):
                self._await_items(inner)
            case ast.Call():
                self.awaited.add(id(node))
                self._await_returned(node, self._await)
            case ast.Name():
                for binding in self._reaching(node):
                    self._await_binding(binding)
                self._await_passed(node, self._await)
            case ast.IfExp(body=one, orelse=other):
                self._await(one)
                self._await(other)
            case ast.BoolOp(values=values):
                self._each(values, self._await)
            case ast.NamedExpr(value=inner):
                self._await(inner)
            case ast.Subscript(value=inner):
                self._await_items(inner)
            case _:
                pass

    def _await_binding(self, binding: Binding) -> None:
        if binding.kind == "is":
            self._await(binding.value)
        elif binding.kind == "item of":
            self._await_items(binding.value)
        elif binding.kind == "item of item of":
            self._await_items_of_items(binding.value)

    def _await_items(self, node: ast.expr) -> None:
        """The items of this expression are awaited."""
        if not self._new(node, "items"):
            return
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                self._each(items, self._await)
            case ast.Dict(values=items):
                self._each(items, self._await)
            case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item) | ast.SetComp(elt=item) | ast.DictComp(value=item):
                self._await(item)
            case ast.Call(func=ast.Attribute(value=inner, attr="values" | "items" | "copy")):
                self._await_items(inner)
            case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in SAME_ITEMS:
                self._await_items(first)
            case ast.Call(func=ast.Name(id="zip"), args=args):
                self._each(args, self._await_items)
            case ast.Call():
                self._await_returned(node, self._await_items)
            case ast.BinOp(left=left, right=right):
                self._each((left, right), self._await_items)
            case ast.IfExp(body=one, orelse=other):
                self._each((one, other), self._await_items)
            case ast.Starred(value=inner) | ast.NamedExpr(value=inner) | ast.Subscript(value=inner):
                self._await_items(inner)
            case ast.Name():
                for binding in self._reaching(node):
                    if binding.kind in ("is", "has"):
                        (self._await_items if binding.kind == "is" else self._await)(binding.value)
                self._await_passed(node, self._await_items)
            case _:
                pass

    def _await_items_of_items(self, node: ast.expr) -> None:
        """`for key, call in d.items()`, `for name, call in [(…), …]`."""
        match node:
            case ast.Call(func=ast.Attribute(attr="items")) | ast.Call(func=ast.Name(id="enumerate" | "zip")):
                self._await_items(node)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                self._each(items, self._await_items)
            case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item):
                self._await_items(item)
            case ast.Name():
                for binding in self._reaching(node):
                    if binding.kind == "is":
                        self._await_items_of_items(binding.value)
                    elif binding.kind == "has":
                        self._await_items(binding.value)
            case _:
                pass

    def _await_returned(self, call: ast.Call, follow: Follow) -> None:
        """What the code's own function returns is awaited, unless it is a coroutine that is awaited itself."""
        function = self._functions.get(_name_of(call.func) or "")
        if function is not None and not isinstance(function, ast.AsyncFunctionDef):
            self._each(self._returns[id(function)], follow)

    def _await_passed(self, name: ast.Name, follow: Follow) -> None:
        """A parameter is awaited: so are the arguments that calls of the function give for it."""
        function = self._owner.get(self._scope[id(name)])
        if function is None or isinstance(function, ast.Lambda):
            return
        parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        for call in self._calls[function.name]:
            if name.id in parameters and (index := parameters.index(name.id)) < len(call.args):
                follow(call.args[index])
            elif function.args.vararg and function.args.vararg.arg == name.id:
                self._each(call.args[len(parameters) :], self._await)
            self._each((keyword.value for keyword in call.keywords if keyword.arg == name.id), follow)

    def _reaching(self, name: ast.Name) -> Iterator[Binding]:
        """The values that a name can have here: from the last one that is certain on, also around a loop."""
        bindings = self._bindings.get((self._scope[id(name)], name.id)) or [
            one for (_, bound), all_of_it in self._bindings.items() if bound == name.id for one in all_of_it
        ]
        here = self._blocks[id(name)]
        bindings = sorted(bindings, key=lambda one: _place(one.where))
        before = [one for one in bindings if _place(one.where) < _place(name)]
        around = [one for one in bindings if one not in before and self._loops & set(here) & set(one.blocks)]
        yield from around
        for binding in reversed(before or ([] if around else bindings)):
            yield binding
            if binding.kind != "has" and here[: len(binding.blocks)] == binding.blocks:
                return

    def _new(self, node: ast.expr, how: str) -> bool:
        key = (id(node), how)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _each(self, nodes: Iterable[ast.expr], follow: Follow) -> None:
        for node in nodes:
            follow(node)


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
