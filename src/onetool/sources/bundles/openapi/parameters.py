"""Parameters of an operation -> arguments, and where they stand in the request.

Styles that a template can't write are approximated where a person can write them (several values in one text, separated
by commas), and told; what can't even be approximated is left out where it is optional, and else skips the operation.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from onetool.sources.bundles.openapi.arguments import Arguments, Place
from onetool.sources.bundles.openapi.document import Document, Unresolved
from onetool.sources.bundles.openapi.keywords import samples_of
from onetool.sources.bundles.openapi.media import kind_of
from onetool.sources.bundles.openapi.naming import clean
from onetool.sources.bundles.openapi.schemas import Definition, Schemas
from onetool.sources.bundles.openapi.templates import as_it_is, is_header_name

MOST = 200
LONGEST_DESCRIPTION = 500

_IN_PATH = re.compile(r"\{([^{}/]{1,100})\}")
_UNFIT_IN_PATH = re.compile(r"[\x00-\x20\x7f-\x9f\\#${}]")
_OURS = frozenset(("accept", "content-type", "authorization"))  # what OpenAPI says to ignore as parameters
_COOKIE_NAME = re.compile(r"[A-Za-z0-9!#%&'*+.^_`|~-]{1,100}")
_TEXT = Definition({"type": "string"}, ())
_SEPARATORS = {"form": "commas", "simple": "commas", "pipeDelimited": "|", "spaceDelimited": "spaces"}


class Parameter(NamedTuple):
    name: str
    place: Place
    given: dict[str, Any]
    schema: dict[str, Any]  # as the document has it, resolved

    @property
    def required(self) -> bool:
        return self.given.get("required") is True

    @property
    def style(self) -> str:
        style = self.given.get("style")
        return style if isinstance(style, str) else ("form" if self.place in ("query", "cookie") else "simple")

    @property
    def explode(self) -> bool:
        explode = self.given.get("explode")
        return explode if isinstance(explode, bool) else self.style == "form"


class Parameters:
    """Those of one operation, put into a request."""

    def __init__(self, document: Document, schemas: Schemas, note: Callable[[str], None]) -> None:
        self._document = document
        self._schemas = schemas
        self._note = note
        self.query: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self._cookies: list[str] = []

    def put(self, path: str, lists: list[Any], arguments: Arguments) -> str:
        """Take all of them; the path as a template comes back."""
        found = self._read(lists)
        path = self._put_path(path, found, arguments)
        for parameter in found.values():
            if parameter.place == "path":
                continue
            try:
                self._put(parameter, arguments)
            except Unresolved as error:
                if parameter.required:
                    raise Unresolved(f"its parameter {parameter.name[:60]!r}: {error}") from None
                self._note(f"its optional parameter {parameter.name[:60]!r} is left out: {error}")
        if self._cookies:
            self.headers["Cookie"] = "; ".join(self._cookies)
        return path

    def _read(self, lists: list[Any]) -> dict[tuple[str, str], Parameter]:
        """By place and name; those of the operation stand for those of its path."""
        found: dict[tuple[str, str], Parameter] = {}
        for one in [one for some in lists if isinstance(some, list) for one in some][:MOST]:
            given = self._document.object(one)
            name, place = given.get("name"), given.get("in")
            if not isinstance(name, str) or not name or place not in ("path", "query", "header", "cookie"):
                raise Unresolved("it has a parameter without a name or a place")
            if place != "header" or name.lower() not in _OURS:
                found[place, name] = Parameter(name, place, given, self._resolved(given.get("schema", {})))
        return found

    def _resolved(self, schema: Any) -> dict[str, Any]:
        try:
            return self._document.object(schema)
        except Unresolved:
            return {}

    def _put_path(self, path: str, found: dict[tuple[str, str], Parameter], arguments: Arguments) -> str:
        if not path.startswith("/") or _UNFIT_IN_PATH.search(_IN_PATH.sub("", path)):
            raise Unresolved(f"{path[:100]!r} is no path: it has to begin with / and can't have # or unseen characters")
        holes: dict[str, str] = {}
        for name in _IN_PATH.findall(path):
            parameter = found.get(("path", name))
            if parameter is None:
                self._note(f"{{{name[:60]}}} of its path is not described; it is taken to be a text")
                parameter = Parameter(name, "path", {}, {"type": "string"})
            if name not in holes:
                holes[name] = arguments.add(name, "path", self._scalar(parameter), required=True)
                prefix = {"label": ".", "matrix": f";{name}="}.get(parameter.style, "")
                holes[name] = as_it_is(prefix) + holes[name]
        return _IN_PATH.sub(lambda match: holes[match[1]], path)

    def _put(self, parameter: Parameter, arguments: Arguments) -> None:
        if parameter.place == "query":
            self._put_query(parameter, arguments)
            return
        if parameter.place == "header" and not is_header_name(parameter.name):
            raise Unresolved("no header can have this name")
        if parameter.place == "cookie" and not self._can_be_cookie(parameter):
            raise Unresolved("several cookies can only be sent where all of them are required")
        value = arguments.add(parameter.name, parameter.place, self._scalar(parameter), parameter.required)
        if parameter.place == "header":
            self.headers[parameter.name] = value
        else:
            self._cookies.append(f"{parameter.name}={value}")

    def _can_be_cookie(self, parameter: Parameter) -> bool:
        """They share one header, which is not sent at all when one of its values is absent."""
        return bool(_COOKIE_NAME.fullmatch(parameter.name)) and (parameter.required or not self._cookies)

    def _put_query(self, parameter: Parameter, arguments: Arguments) -> None:
        kind = kind_of(parameter.schema)
        name = parameter.name
        if kind == "object" and "content" not in parameter.given:
            self._put_members(parameter, arguments)
        elif kind == "array" and parameter.style == "form" and parameter.explode:
            if kind_of(self._resolved(parameter.schema.get("items", {}))) in ("object", "array"):
                raise Unresolved("a list of structures has no form in a query")
            definition = self._described(parameter, self._schemas.read(parameter.given["schema"], "in"))
            self.query[as_it_is(name)] = arguments.add(name, "query", definition, parameter.required)
        else:
            self.query[as_it_is(name)] = arguments.add(name, "query", self._scalar(parameter), parameter.required)

    def _put_members(self, parameter: Parameter, arguments: Arguments) -> None:
        """`filter[name]=…` or `name=…`, a pair for each member of an object."""
        deep = parameter.style == "deepObject"
        if not deep and not (parameter.style == "form" and parameter.explode):
            raise Unresolved(f"an object in the style {parameter.style[:40]!r} has no form in a template")
        members = parameter.schema.get("properties")
        if not isinstance(members, dict) or not members or len(members) > MOST:
            raise Unresolved("an object without known members has no form in a query")
        required = parameter.schema.get("required") if parameter.required else ()
        for name, schema in members.items():
            if kind_of(self._resolved(schema)) == "object":
                self._note(f"{parameter.name[:60]}.{name[:60]} is left out: objects in objects have no form in a query")
                continue
            key = f"{parameter.name}[{name}]" if deep else name
            definition = self._schemas.read(schema, "in")
            needed = isinstance(required, list) and name in required
            self.query[as_it_is(key)] = arguments.add(key, "query", definition, needed)

    def _scalar(self, parameter: Parameter) -> Definition:
        """One text or number. Structures are given as the text that is sent."""
        if isinstance(content := parameter.given.get("content"), dict) and content:
            media = self._document.object(next(iter(content.values())))
            if kind_of(self._resolved(media.get("schema", {}))) in ("object", "array", None):
                self._note(f"{parameter.name[:60]} is given as a text of JSON")
                return self._described(parameter, _TEXT, "As a text of JSON.")
            return self._described(parameter, self._schemas.read(media["schema"], "in"))
        kind = kind_of(parameter.schema)
        if kind == "array":
            between = _SEPARATORS.get(parameter.style, "commas")
            self._note(f"{parameter.name[:60]} is given as one text, its values separated by {between}")
            return self._described(parameter, _TEXT, f"Several are separated by {between}.")
        if kind == "object":
            raise Unresolved(f"an object has no form in the {parameter.place}")
        return self._described(parameter, self._schemas.read(parameter.given.get("schema", parameter.schema), "in"))

    def _described(self, parameter: Parameter, definition: Definition, more: str = "") -> Definition:
        schema = dict(definition.schema) if isinstance(definition.schema, dict) else {}
        own = clean(parameter.given.get("description"), LONGEST_DESCRIPTION) or schema.get("description", "")
        if text := " ".join(part for part in (own, more) if part):
            schema["description"] = text
        if "examples" not in schema and not more and (samples := samples_of(parameter.given)):
            schema["examples"] = samples
        if parameter.given.get("deprecated") is True:
            schema["deprecated"] = True
        return Definition(schema, definition.uses)
