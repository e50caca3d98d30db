"""Convert the parameters of an operation into arguments of a tool and their places in the request.

Lists and objects in a query are encoded as the document specifies. Lists in paths, headers and cookies become one
string with commas, which is reported. Unsupported parameters are left out if optional; otherwise the operation is
skipped.
"""

import re
from collections.abc import Callable
from itertools import chain
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

import msgspec

from onetool.sources.bundles.import_names import argument_name, is_header_name, literal, placeholder, printable
from onetool.sources.bundles.openapi.document import OpenApiDocument, UnresolvedError
from onetool.sources.bundles.openapi.schemas import (
    DEFINITIONS,
    MAX_DESCRIPTION,
    Definition,
    Schemas,
    kind_of,
    samples_of,
    size_of,
)

Place = Literal["path", "query", "header", "cookie", "body"]
MAX_ARGUMENTS = 500  # of one name
MAX_DEFAULT = 80


class ToolArguments:
    """The arguments of a tool. The first with a name keeps it; others are named after their place: `body_id`."""

    def __init__(self, reserved: tuple[str, ...] = ()) -> None:
        self._reserved = frozenset(reserved)  # names of secrets, which arguments must not replace
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []
        self._uses: list[str] = []

    def add(self, name: str, place: Place, definition: Definition, required: bool) -> str:
        """Add an argument, and return its placeholder."""
        name = argument_name(name)
        names = chain((name, f"{place}_{name}"), (f"{place}_{name}_{number}" for number in range(2, MAX_ARGUMENTS)))
        free = next((name for name in names if name not in self.properties and name not in self._reserved), None)
        if free is None:
            raise UnresolvedError(f"more than {MAX_ARGUMENTS} arguments are called {name!r}")
        self.properties[free] = definition.schema
        self._uses += definition.uses
        if required:
            self.required.append(free)
        return placeholder(free)

    def schema(self) -> Definition:
        schema: dict[str, Any] = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = self.required
        return Definition(schema, tuple(self._uses), size_of(schema))


def describe_defaults(schema: dict[str, Any]) -> None:
    """Describe the defaults of arguments: the server applies them, so a call must not send them unasked."""
    for name, argument in schema["properties"].items():
        if not isinstance(argument, dict):
            continue
        found, seen = argument, set[str]()
        while "default" not in found and isinstance(ref := found.get("$ref"), str) and ref not in seen:
            seen.add(ref)
            found = schema["$defs"][ref.removeprefix(DEFINITIONS)]
        if "default" in found:
            others = {key: value for key, value in argument.items() if key != "default"}
            default = printable(msgspec.json.encode(found["default"]).decode(), MAX_DEFAULT)
            own = argument.get("description") or found.get("description", "")
            schema["properties"][name] = others | {"description": f"{own} Without it: {default}.".strip()}


# Parameters

MAX_PARAMETERS = 1_000  # some lists have a parameter for each filter of each field

_IN_PATH = re.compile(r"\{([^{}/]{1,100})\}")
_UNFIT_IN_PATH = re.compile(r"[\x00-\x20\x7f-\x9f\\{}]")
# Ignored as parameters: OpenAPI requires it of the first three, and the length is that of the body.
_OURS = frozenset(("accept", "content-type", "authorization", "content-length"))
_COOKIE_NAME = re.compile(r"[A-Za-z0-9!#%&'*+.^_`|~-]{1,100}")
_ANY_TEXT = Definition({"type": "string"}, ())


class Parameter(NamedTuple):
    name: str
    place: Place
    data: dict[str, Any]
    schema: dict[str, Any]  # from the document, resolved

    @property
    def required(self) -> bool:
        return self.data.get("required") is True

    @property
    def style(self) -> str:
        style = self.data.get("style")
        return style if isinstance(style, str) else ("form" if self.place in ("query", "cookie") else "simple")

    @property
    def explode(self) -> bool:
        explode = self.data.get("explode")
        return explode if isinstance(explode, bool) else self.style == "form"


class ParameterConverter:
    """A converter of one operation's parameters into parts of a request."""

    def __init__(self, document: OpenApiDocument, schemas: Schemas, note: Callable[[str], None]) -> None:
        self._document = document
        self._schemas = schemas
        self._note = note
        self.query: dict[str, Any] = {}
        self.query_encoding: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self._cookies: list[str] = []

    def convert(self, path: str, lists: list[Any], arguments: ToolArguments) -> str:
        """Convert all parameters, and return the path as a template. Later lists replace parameters of earlier ones."""
        parameters: dict[tuple[str, str], Parameter] = {}
        items = [item for items in lists if isinstance(items, list) for item in items]
        if (left := len(items) - MAX_PARAMETERS) > 0:
            self._note(f"{left:,} more parameters are left out: an operation is limited to {MAX_PARAMETERS:,}")
        for item in items[:MAX_PARAMETERS]:
            data = self._document.object(item)
            name, place = data.get("name"), data.get("in")
            if not isinstance(name, str) or not name or place not in ("path", "query", "header", "cookie"):
                self._note("a parameter without `name` or `in` is left out")
                continue
            if place != "header" or name.lower() not in _OURS:
                parameters[place, name] = Parameter(name, place, data, self._resolved(data.get("schema", {})))
        path = self._convert_path(path, parameters, arguments)
        for parameter in parameters.values():
            if parameter.place == "path":
                continue
            try:
                self._convert(parameter, arguments)
            except UnresolvedError as error:
                if parameter.required:
                    raise UnresolvedError(f"its parameter {parameter.name[:60]!r}: {error}") from None
                self._note(f"its optional parameter {parameter.name[:60]!r} is left out: {error}")
        if self._cookies:
            self.headers["Cookie"] = "; ".join(self._cookies)
        return path

    def _resolved(self, schema: Any) -> dict[str, Any]:
        try:
            return self._document.object(schema)
        except UnresolvedError:
            return {}

    def _convert_path(self, path: str, parameters: dict[tuple[str, str], Parameter], arguments: ToolArguments) -> str:
        # The fragment only distinguishes operations and isn't sent. A dollar sign would escape a placeholder.
        path = path.partition("#")[0].replace("${", "%24{")
        if not path.startswith("/") or _UNFIT_IN_PATH.search(_IN_PATH.sub("", path)):
            raise UnresolvedError(
                f"{path[:100]!r} isn't a path: it must begin with / and can't have invisible characters"
            )
        placeholders: dict[str, str] = {}
        for name in _IN_PATH.findall(path):
            parameter = parameters.get(("path", name))
            if parameter is None:
                self._note(f"{{{name[:60]}}} of its path is not described; it is treated as a string")
                parameter = Parameter(name, "path", {}, {"type": "string"})
            if name not in placeholders:
                placeholders[name] = arguments.add(name, "path", self._scalar(parameter), required=True)
                prefix = {"label": ".", "matrix": f";{name}="}.get(parameter.style, "")
                placeholders[name] = literal(prefix) + placeholders[name]
        template = _IN_PATH.sub(lambda match: placeholders[match[1]], path)
        segments = unquote(template.partition("?")[0]).replace("\\", "/").split("/")[1:]
        if "" in segments[:-1] or any(segment.partition(";")[0] in (".", "..") for segment in segments):
            why = "a segment that is empty, . or .. could lead out of the server's base path"
            raise UnresolvedError(f"{path[:100]!r} isn't a path: {why}")
        return template

    def _convert(self, parameter: Parameter, arguments: ToolArguments) -> None:
        if parameter.place == "query":
            self._convert_query(parameter, arguments)
            return
        if parameter.place == "header" and not is_header_name(parameter.name):
            raise UnresolvedError("no header can have this name")
        if parameter.place == "cookie" and (
            not _COOKIE_NAME.fullmatch(parameter.name) or (self._cookies and not parameter.required)
        ):  # all cookies share a header, which is omitted if any value is missing
            raise UnresolvedError("several cookies can only be sent where all of them are required")
        value = arguments.add(parameter.name, parameter.place, self._scalar(parameter), parameter.required)
        if parameter.place == "header":
            self.headers[parameter.name] = value
        else:
            self._cookies.append(f"{parameter.name}={value}")

    def _convert_query(self, parameter: Parameter, arguments: ToolArguments) -> None:
        name, kind = literal(parameter.name), kind_of(parameter.schema)
        if "content" in parameter.data or "schema" not in parameter.data:
            self.query[name] = arguments.add(parameter.name, "query", self._scalar(parameter), parameter.required)
            return
        is_exploded = kind == "object" and parameter.style == "form" and parameter.explode
        if is_exploded and self._convert_members(parameter, arguments):
            return
        definition = self._described(parameter, self._schemas.read(parameter.data["schema"]))
        self.query[name] = arguments.add(parameter.name, "query", definition, parameter.required)
        if encoding := field_encoding(parameter.style, parameter.explode, kind):
            self.query_encoding[name] = encoding

    def _convert_members(self, parameter: Parameter, arguments: ToolArguments) -> bool:
        """Add each member of an object under its own name, `name=…`, if all of them are known and plain."""
        members = parameter.schema.get("properties")
        if not isinstance(members, dict) or not members or len(members) > MAX_PARAMETERS:
            return False
        if any(kind_of(self._resolved(schema)) == "object" for schema in members.values()):
            return False
        required = parameter.schema.get("required") if parameter.required else ()
        for name, schema in members.items():
            needed = isinstance(required, list) and name in required
            self.query[literal(name)] = arguments.add(name, "query", self._schemas.read(schema), needed)
        return True

    def _scalar(self, parameter: Parameter) -> Definition:
        """Return the schema of a string or number. Callers pass structures as the text that is sent."""
        if isinstance(content := parameter.data.get("content"), dict) and content:
            media = self._document.object(next(iter(content.values())))
            if kind_of(self._resolved(media.get("schema", {}))) in ("object", "array", None):
                self._note(f"{parameter.name[:60]} is passed as a string of JSON")
                return self._described(parameter, _ANY_TEXT, "As a string of JSON.")
            return self._described(parameter, self._schemas.read(media["schema"]))
        kind = kind_of(parameter.schema)
        if kind == "array":
            self._note(f"{parameter.name[:60]} is passed as one string, with commas between its values")
            return self._described(parameter, _ANY_TEXT, "Several are separated by commas.")
        if kind == "object":
            raise UnresolvedError(f"an object can't be sent in the {parameter.place}")
        return self._described(parameter, self._schemas.read(parameter.data.get("schema", parameter.schema)))

    def _described(self, parameter: Parameter, definition: Definition, more: str = "") -> Definition:
        schema = dict(definition.schema) if isinstance(definition.schema, dict) else {}
        own = printable(parameter.data.get("description"), MAX_DESCRIPTION) or schema.get("description", "")
        if text := " ".join(part for part in (own, more) if part):
            schema["description"] = text
        if "examples" not in schema and not more and (samples := samples_of(parameter.data)):
            schema["examples"] = samples
        if parameter.data.get("deprecated") is True:
            schema["deprecated"] = True
        return Definition(schema, definition.uses)


def field_encoding(style: Any, explode: bool, kind: str | None) -> dict[str, Any]:
    """Return the encoding of a field for httpImpl, empty if it is the default."""
    if style == "deepObject":
        return {"style": style}
    if style in ("spaceDelimited", "pipeDelimited"):
        return {} if explode else {"style": style}
    if style != "form" or kind in ("string", "integer", "number", "boolean"):
        return {}
    if not explode:
        return {"style": "form", "explode": False}
    return {} if kind == "array" else {"style": "form"}
