"""Operations: everything that one can ask of an app, each declared once as a function.

    @operation("DELETE", "/tokens/{token}", "Server", role="admin", errors=(404,), command=Command("tokens revoke"))
    def revoke_token(at: At, token: str) -> RevokedToken:
        "Revoke a token at once."

Its REST route, its command and its entry in /openapi.json are made from this declaration (`interfaces/rest/operations`
and `interfaces/cli/operations`). The parameters after `at` are the values in the path, in their order, then a `query`
and a body, both Structs: their fields are the query parameters and the options of the command. The name of the function
is the operationId; the first line of the docstring is the summary, and the rest the description.

A function that isn't async may block: it runs in a thread. It raises the errors of `sources/bundles/errors`, with a
pointer to the wrong field. A module has the operations of one subject, and its docstring is the help of their commands.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import cleandoc, signature
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import msgspec

from onetool.app.operations.fields import Query
from onetool.core.principal import OWNER, Principal, Role, current_principal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from onetool.app import App
    from onetool.ask.sessions import SessionStore
    from onetool.config import Config
    from onetool.config.server_import import ConfigTarget
    from onetool.services.access_tokens import TokenStore
    from onetool.services.secrets import Secrets

OPERATIONS: "list[Operation]" = []
"""The operations of all modules imported so far: see `all_operations`."""


class At:
    """Where an operation runs: the app, its caller, and what they may use."""

    app: "App"
    is_command = False  # at the command line, by the user of this machine
    is_shown = False  # a user at a terminal reads the result
    removals: dict[str, Any]  # removed blocks of the config that can be restored, by id

    @property
    def config(self) -> "Config":
        return self.app.config

    @property
    def secrets(self) -> "Secrets":
        return self.config.secrets

    @property
    def principal(self) -> Principal:
        """The caller."""
        return current_principal.get()

    @property
    def is_owner(self) -> bool:
        """Whether the caller is the user of this machine: at the command line, or with a link of `onetool page`."""
        return self.is_command or self.principal == OWNER

    def clean(self, value: Any) -> Any:
        """Mask secrets in strings."""
        return self.app.runtime.redact(value)

    @property
    def may_change(self) -> bool:
        return self.principal.may("edit")

    @property
    def allowed(self) -> "Collection[str] | None":
        """The tools that the caller may call; None means all."""
        return None

    @property
    def sessions(self) -> "SessionStore":
        """The conversations with models."""
        return self.app.sessions

    @contextmanager
    def tokens(self) -> "Iterator[TokenStore]":
        """Open the stored tokens."""
        yield self.app.runtime.tokens.store

    def config_target(self) -> "ConfigTarget":
        """Return the config to change. Raises ConfigUnchangedError, ConfigError."""
        from onetool.app.grants import target_of

        return target_of(self.app)

    def load(self, file: Path, *, settings_only: bool = False, is_code: bool = False) -> None:
        """Use a file of the config that was changed. `is_code` means that the change starts a program."""
        from onetool.app.grants import load_written

        load_written(self.app, file, settings_only=settings_only)

    # For a user at a terminal; other callers get the result only

    def say(self, text: str) -> None:
        """Print the result in words."""

    def note(self, text: str) -> None:
        """Print a remark about the result."""

    def confirm(self, question: str, yes: bool, to_do: str, done: str) -> None:
        """Ask a user at a terminal, unless `yes`. Raises an error if the answer is no."""

    def warn_unmatched(self, field: str, names: "Iterable[str]") -> None:
        """Warn about names and patterns in this field that match no tool."""

    def option(self, field: str) -> str:
        """Return how a caller sets this field to true."""
        return f"`{field}: true`"


class Command(msgspec.Struct, frozen=True):
    """The command of an operation: its name, and how a terminal shows the result."""

    name: str  # as in `onetool tokens list`
    rows: str = ""  # the key of the result that has the rows of a list
    columns: tuple[str, ...] = ()  # keys of the rows
    empty: str = ""  # printed if there are no rows
    flat: str = ""  # the key of the result whose keys are printed beside the others
    many: bool = False  # the last argument may be repeated
    noted: bool = False  # it is recorded in the audit log
    waits: bool = True  # with `audit: required`, the line is written first
    unless: str = ""  # it isn't recorded if this field is true


def _not_an_operation(*_: Any) -> None:
    raise NotImplementedError  # a route of REST, which has a handler


class Operation(msgspec.Struct, frozen=True):
    """An operation: one method of one path, or only a command."""

    method: str = ""
    path: str = ""
    tag: str = ""  # the group in the OpenAPI document

    # Access
    role: Role | None = None  # None: edit for PUT, PATCH and DELETE, else call
    own: bool = False  # it changes only data of the caller, so any named caller may use it
    for_tools: bool = False  # tools may use it, too: only for operations that find and call tools
    audited: bool = True  # False: the audit log has only refusals, because pages use it all the time
    changes_access: bool = False  # the caller gets the response even if the change revokes its token

    # Input and output: Structs, or other types that msgspec describes
    query: type[Query] | None = None
    takes: Any = None
    example: Any = None
    gives: Any = None
    status: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = ()  # statuses, in addition to those of every route
    is_secret: bool = False  # the response must not be stored on its way

    command: Command | None = None
    completes: str = ""  # the name in paths whose values are the first ones in the rows of the result

    # Set by the decorator
    id: str = ""
    doc: str = ""
    names: tuple[str, ...] = ()  # of the values in the path, which are the arguments of the command
    run: Callable[..., Any] = _not_an_operation

    def described(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return the id and the description that a function gives its operation."""
        first, *rest = function.__name__.split("_")
        return {"id": first + "".join(map(str.title, rest)), "doc": cleandoc(function.__doc__ or "")}

    def needed_role(self, principal: Principal) -> Role:
        if self.role is not None:
            return self.role
        is_own = self.own and principal.name
        return "edit" if self.method in ("PUT", "PATCH", "DELETE") and not is_own else "call"


def operation(
    method: str = "", path: str = "", tag: str = "", **facts: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the decorated function as an operation."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        wanted = signature(function)
        shapes = [one.annotation for one in wanted.parameters.values() if one.annotation not in (At, str)]
        query = next((one for one in shapes if isinstance(one, type) and issubclass(one, Query)), None)
        takes = next((one for one in shapes if one is not query), None)
        gives = wanted.return_annotation
        found = Operation(method, path, tag, query=query, takes=takes, gives=gives, **facts)
        if gives is None:
            found = msgspec.structs.replace(found, status=(204,))
        names = tuple(names_in(path) or [name for name, one in wanted.parameters.items() if one.annotation is str])
        OPERATIONS.append(msgspec.structs.replace(found, **found.described(function), names=names, run=function))
        return function

    return declare


def names_in(path: str) -> list[str]:
    """Return the names in a path, such as `token` in /tokens/{token}."""
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def all_operations() -> list[Operation]:
    """Return the operations of all modules."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return OPERATIONS
