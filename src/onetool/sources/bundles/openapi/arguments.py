"""Turns the parameters and the body of an operation into arguments of a tool, and says where they go in the request.

The members of a body that is an object become arguments beside the parameters. A body that is no plain object (a list,
alternatives, a map of anything) is one argument, `body`. A style that a template can't write is approximated where a
person can write it (several values in one text, separated by commas), and reported; what can't be approximated is left
out where it is optional, and else skips the operation.
"""

import re
from collections.abc import Callable
from itertools import chain
from typing import Any, Literal, NamedTuple

import msgspec

from onetool.http.template import FORM
from onetool.sources.bundles.import_names import argument_name, is_header_name, literal, placeholder, printable
from onetool.sources.bundles.openapi.document import OpenApiDocument, UnresolvedError
from onetool.sources.bundles.openapi.schemas import (
    Definition,
    Schemas,
    is_json,
    is_multipart,
    is_xml,
    kind_of,
    known_media,
    samples_of,
)

Place = Literal["path", "query", "header", "cookie", "body"]
MOST_ARGUMENTS = 500
LONGEST_DEFAULT = 80


class ToolArguments:
    """Collects them. The first of a name keeps it; another one says where it goes: `body_id` beside `id`."""

    def __init__(self, reserved: tuple[str, ...] = ()) -> None:
        self._reserved = frozenset(reserved)  # names of secrets: an argument of that name would stand for it
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []
        self._uses: list[str] = []

    def add(self, name: str, place: Place, definition: Definition, required: bool) -> str:
        """Take one more, and give the placeholder for it."""
        chosen = self._free(argument_name(name), place)
        self.properties[chosen] = _without_default(definition.schema)
        self._uses += definition.uses
        if required:
            self.required.append(chosen)
        return placeholder(chosen)

    def _free(self, name: str, place: Place) -> str:
        more = (f"{place}_{name}_{number}" for number in range(2, MOST_ARGUMENTS))
        words = chain((name, f"{place}_{name}"), more)
        return next(word for word in words if word not in self.properties and word not in self._reserved)

    def schema(self) -> Definition:
        schema: dict[str, Any] = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = self.required
        return Definition(schema, tuple(self._uses))


def _without_default(schema: Any) -> Any:
    """What the server does without an argument is the server's to do: sent by us, a default would be a change."""
    if not isinstance(schema, dict) or "default" not in schema:
        return schema
    words = printable(msgspec.json.encode(schema["default"]).decode(), LONGEST_DEFAULT)
    text = f"{schema.get('description', '')} Without it: {words}.".strip()
    return {**{key: value for key, value in schema.items() if key != "default"}, "description": text}


# Parameters


MOST_PARAMETERS = 200
LONGEST_DESCRIPTION = 500

_IN_PATH = re.compile(r"\{([^{}/]{1,100})\}")
_UNFIT_IN_PATH = re.compile(r"[\x00-\x20\x7f-\x9f\\{}]")
_OURS = frozenset(("accept", "content-type", "authorization"))  # what OpenAPI says to ignore as parameters
_COOKIE_NAME = re.compile(r"[A-Za-z0-9!#%&'*+.^_`|~-]{1,100}")
_ANY_TEXT = Definition({"type": "string"}, ())
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


class ParameterConverter:
    """Those of one operation, put into a request."""

    def __init__(self, document: OpenApiDocument, schemas: Schemas, note: Callable[[str], None]) -> None:
        self._document = document
        self._schemas = schemas
        self._note = note
        self.query: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self._cookies: list[str] = []

    def put(self, path: str, lists: list[Any], arguments: ToolArguments) -> str:
        """Take all of them; the path as a template comes back."""
        found = self._read(lists)
        path = self._put_path(path, found, arguments)
        for parameter in found.values():
            if parameter.place == "path":
                continue
            try:
                self._put(parameter, arguments)
            except UnresolvedError as error:
                if parameter.required:
                    raise UnresolvedError(f"its parameter {parameter.name[:60]!r}: {error}") from None
                self._note(f"its optional parameter {parameter.name[:60]!r} is left out: {error}")
        if self._cookies:
            self.headers["Cookie"] = "; ".join(self._cookies)
        return path

    def _read(self, lists: list[Any]) -> dict[tuple[str, str], Parameter]:
        """By place and name; those of the operation stand for those of its path."""
        found: dict[tuple[str, str], Parameter] = {}
        for one in [one for some in lists if isinstance(some, list) for one in some][:MOST_PARAMETERS]:
            given = self._document.object(one)
            name, place = given.get("name"), given.get("in")
            if not isinstance(name, str) or not name or place not in ("path", "query", "header", "cookie"):
                raise UnresolvedError("it has a parameter without a name or a place")
            if place != "header" or name.lower() not in _OURS:
                found[place, name] = Parameter(name, place, given, self._resolved(given.get("schema", {})))
        return found

    def _resolved(self, schema: Any) -> dict[str, Any]:
        try:
            return self._document.object(schema)
        except UnresolvedError:
            return {}

    def _put_path(self, path: str, found: dict[tuple[str, str], Parameter], arguments: ToolArguments) -> str:
        # What stands behind # tells operations on one URL apart, and isn't sent. A dollar would escape a placeholder.
        path = path.partition("#")[0].replace("${", "%24{")
        if not path.startswith("/") or _UNFIT_IN_PATH.search(_IN_PATH.sub("", path)):
            raise UnresolvedError(f"{path[:100]!r} isn't a path: it must begin with / and can't have unseen characters")
        placeholders: dict[str, str] = {}
        for name in _IN_PATH.findall(path):
            parameter = found.get(("path", name))
            if parameter is None:
                self._note(f"{{{name[:60]}}} of its path is not described; it is taken to be a text")
                parameter = Parameter(name, "path", {}, {"type": "string"})
            if name not in placeholders:
                placeholders[name] = arguments.add(name, "path", self._scalar(parameter), required=True)
                prefix = {"label": ".", "matrix": f";{name}="}.get(parameter.style, "")
                placeholders[name] = literal(prefix) + placeholders[name]
        return _IN_PATH.sub(lambda match: placeholders[match[1]], path)

    def _put(self, parameter: Parameter, arguments: ToolArguments) -> None:
        if parameter.place == "query":
            self._put_query(parameter, arguments)
            return
        if parameter.place == "header" and not is_header_name(parameter.name):
            raise UnresolvedError("no header can have this name")
        if parameter.place == "cookie" and not self._can_be_cookie(parameter):
            raise UnresolvedError("several cookies can only be sent where all of them are required")
        value = arguments.add(parameter.name, parameter.place, self._scalar(parameter), parameter.required)
        if parameter.place == "header":
            self.headers[parameter.name] = value
        else:
            self._cookies.append(f"{parameter.name}={value}")

    def _can_be_cookie(self, parameter: Parameter) -> bool:
        """They share one header, which is not sent at all when one of its values is absent."""
        return bool(_COOKIE_NAME.fullmatch(parameter.name)) and (parameter.required or not self._cookies)

    def _put_query(self, parameter: Parameter, arguments: ToolArguments) -> None:
        kind = kind_of(parameter.schema)
        name = parameter.name
        if kind == "object" and "content" not in parameter.given:
            self._put_members(parameter, arguments)
        elif kind == "array" and parameter.style == "form" and parameter.explode:
            if kind_of(self._resolved(parameter.schema.get("items", {}))) in ("object", "array"):
                raise UnresolvedError("a list of structures has no form in a query")
            definition = self._described(parameter, self._schemas.read(parameter.given["schema"], "in"))
            self.query[literal(name)] = arguments.add(name, "query", definition, parameter.required)
        else:
            self.query[literal(name)] = arguments.add(name, "query", self._scalar(parameter), parameter.required)

    def _put_members(self, parameter: Parameter, arguments: ToolArguments) -> None:
        """`filter[name]=…` or `name=…`, a pair for each member of an object."""
        deep = parameter.style == "deepObject"
        if not deep and not (parameter.style == "form" and parameter.explode):
            raise UnresolvedError(f"an object in the style {parameter.style[:40]!r} has no form in a template")
        members = parameter.schema.get("properties")
        if not isinstance(members, dict) or not members or len(members) > MOST_PARAMETERS:
            raise UnresolvedError("an object without known members has no form in a query")
        required = parameter.schema.get("required") if parameter.required else ()
        for name, schema in members.items():
            if kind_of(self._resolved(schema)) == "object":
                self._note(f"{parameter.name[:60]}.{name[:60]} is left out: objects in objects have no form in a query")
                continue
            key = f"{parameter.name}[{name}]" if deep else name
            definition = self._schemas.read(schema, "in")
            needed = isinstance(required, list) and name in required
            self.query[literal(key)] = arguments.add(key, "query", definition, needed)

    def _scalar(self, parameter: Parameter) -> Definition:
        """One text or number. Structures are given as the text that is sent."""
        if isinstance(content := parameter.given.get("content"), dict) and content:
            media = self._document.object(next(iter(content.values())))
            if kind_of(self._resolved(media.get("schema", {}))) in ("object", "array", None):
                self._note(f"{parameter.name[:60]} is given as a text of JSON")
                return self._described(parameter, _ANY_TEXT, "As a text of JSON.")
            return self._described(parameter, self._schemas.read(media["schema"], "in"))
        kind = kind_of(parameter.schema)
        if kind == "array":
            between = _SEPARATORS.get(parameter.style, "commas")
            self._note(f"{parameter.name[:60]} is given as one text, its values separated by {between}")
            return self._described(parameter, _ANY_TEXT, f"Several are separated by {between}.")
        if kind == "object":
            raise UnresolvedError(f"an object has no form in the {parameter.place}")
        return self._described(parameter, self._schemas.read(parameter.given.get("schema", parameter.schema), "in"))

    def _described(self, parameter: Parameter, definition: Definition, more: str = "") -> Definition:
        schema = dict(definition.schema) if isinstance(definition.schema, dict) else {}
        own = printable(parameter.given.get("description"), LONGEST_DESCRIPTION) or schema.get("description", "")
        if text := " ".join(part for part in (own, more) if part):
            schema["description"] = text
        if "examples" not in schema and not more and (samples := samples_of(parameter.given)):
            schema["examples"] = samples
        if parameter.given.get("deprecated") is True:
            schema["deprecated"] = True
        return Definition(schema, definition.uses)


# Bodies


MOST_MEMBERS = 200  # members that become arguments
DEEPEST_MEMBERS = 8  # allOf inside of allOf

_ONLY_REQUIRED = frozenset(("required", "type", "title", "description"))


class BodyMembers(NamedTuple):
    schemas: dict[str, Any]
    required: frozenset[str]


class BodyTemplateParts(NamedTuple):
    template: Any = None
    content_type: str | None = None  # where the template alone does not say it


class BodyConverter:
    def __init__(self, document: OpenApiDocument, schemas: Schemas, note: Callable[[str], None]) -> None:
        self._document = document
        self._schemas = schemas
        self._note = note

    def put(self, given: Any, arguments: ToolArguments) -> BodyTemplateParts:
        """Take the body of one operation."""
        body = self._document.object(given)
        required = body.get("required") is True
        content = body.get("content")
        try:
            return self._put(content if isinstance(content, dict) else {}, required, body.get("description"), arguments)
        except UnresolvedError as error:
            if required:
                raise
            self._note(f"its optional body is left out: {error}")
            return BodyTemplateParts()

    def _put(
        self, content: dict[str, Any], required: bool, description: Any, arguments: ToolArguments
    ) -> BodyTemplateParts:
        media_type = _chosen(content)
        media = self._document.object(content[media_type])
        samples = self._samples(media)
        name = known_media(media_type)
        if is_json(media_type):
            members = self._members(media.get("schema"), DEEPEST_MEMBERS)
            if members is None:
                return BodyTemplateParts(
                    self._whole(media.get("schema", {}), required, description, samples, arguments), name
                )
            template = self._flat(members, required, samples, arguments)
            return BodyTemplateParts(template, None if name == "application/json" else name)
        if name == FORM:
            members = self._members(media.get("schema"), DEEPEST_MEMBERS)
            if members is None:
                raise UnresolvedError("a form without known members can't be made")
            return BodyTemplateParts(self._flat(self._flat_only(members), required, samples, arguments), FORM)
        if not name.startswith("text/"):
            self._note(f"its body ({name}) is given as a text")
        return BodyTemplateParts(self._whole({"type": "string"}, required, description, [], arguments), name)

    def _samples(self, media: dict[str, Any]) -> list[Any]:
        """Examples may be references."""
        named = media.get("examples")
        if isinstance(named, dict):
            found: dict[str, Any] = {}
            for name, one in list(named.items())[:3]:
                try:
                    found[name] = self._document.object(one)
                except UnresolvedError:
                    continue
            media = {**media, "examples": found}
        return samples_of(media)

    def _whole(
        self, schema: Any, required: bool, description: Any, samples: list[Any], arguments: ToolArguments
    ) -> str:
        definition = self._schemas.read(schema, "in")
        found = dict(definition.schema) if isinstance(definition.schema, dict) else {}
        if "description" not in found and (text := printable(description, 500)):
            found["description"] = text
        if samples and "examples" not in found:
            found["examples"] = samples
        return arguments.add("body", "body", Definition(found, definition.uses), required)

    def _flat(
        self, members: BodyMembers, required: bool, samples: list[Any], arguments: ToolArguments
    ) -> dict[str, Any]:
        template: dict[str, Any] = {}
        for name, schema in members.schemas.items():
            definition = self._schemas.read(schema, "in")
            found = definition.schema if isinstance(definition.schema, dict) else {}
            said = [one[name] for one in samples if isinstance(one, dict) and name in one]
            if said and "examples" not in found and "default" not in found and "enum" not in found:
                found = {**found, "examples": said[:1]}
            needed = required and name in members.required
            template[literal(name)] = arguments.add(name, "body", Definition(found, definition.uses), needed)
        return template

    def _flat_only(self, members: BodyMembers) -> BodyMembers:
        """What a form can carry: texts, numbers, and lists of them."""
        kept: dict[str, Any] = {}
        for name, schema in members.schemas.items():
            if self._is_flat(schema):
                kept[name] = schema
            elif name in members.required:
                raise UnresolvedError(f"its form has an object in it ({name[:60]!r}), which has no form of its own")
            else:
                self._note(f"{name[:60]!r} of its form is left out: it is an object")
        return BodyMembers(kept, members.required)

    def _is_flat(self, schema: Any) -> bool:
        found = self._document.object(schema)
        if kind_of(found) == "array":
            found = self._document.object(found.get("items", {}))
            return kind_of(found) not in ("object", "array")
        return kind_of(found) != "object" and not any(word in found for word in ("allOf", "anyOf", "oneOf"))

    def _members(self, schema: Any, levels: int) -> BodyMembers | None:
        """The members of a plain object; None for anything else, and for objects with unknown members."""
        found = self._document.object(schema if schema is not None else {})
        parts = found.get("allOf")
        if levels == 0 or kind_of(found) not in ("object", None) or not (parts or found.get("properties")):
            return None
        alternatives = [found[word] for word in ("anyOf", "oneOf") if word in found]
        if not all(map(_says_only_required, alternatives)) or found.get("nullable") is True:
            return None
        schemas: dict[str, Any] = {}
        required: set[str] = set()
        for part in parts if isinstance(parts, list) else ():
            if (inner := self._part(part, levels - 1)) is None:
                return None
            schemas |= inner.schemas
            required |= inner.required
        own = found.get("properties")
        schemas |= own if isinstance(own, dict) else {}
        names = found.get("required")
        required |= {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
        kept = {name: one for name, one in schemas.items() if name and not self._is_read_only(one)}
        return BodyMembers(kept, frozenset(required)) if len(kept) <= MOST_MEMBERS else None

    def _part(self, part: Any, levels: int) -> BodyMembers | None:
        """One of allOf may also say nothing but what is required."""
        found = self._document.object(part)
        if found.keys() <= _ONLY_REQUIRED:
            return BodyMembers({}, frozenset(name for name in found.get("required") or () if isinstance(name, str)))
        return self._members(part, levels)

    def _is_read_only(self, schema: Any) -> bool:
        try:
            return self._document.object(schema).get("readOnly") is True
        except UnresolvedError:
            return False


def _says_only_required(arms: Any) -> bool:
    """`anyOf: [{required: [a]}, {required: [b]}]` is left to the server to check."""
    return isinstance(arms, list) and all(isinstance(arm, dict) and arm.keys() <= _ONLY_REQUIRED for arm in arms)


def _chosen(content: dict[str, Any]) -> str:
    """The media type that a template can write best."""
    if not content:
        raise UnresolvedError("its body has no content")
    for fits in (lambda one: known_media(one) == "application/json", is_json, lambda one: known_media(one) == FORM):
        for media_type in content:
            if fits(media_type):
                return media_type
    plain = [one for one in content if known_media(one) and not is_multipart(one) and not is_xml(one)]
    if plain:
        return plain[0]
    kinds = ", ".join(printable(one, 60) for one in list(content)[:3])
    raise UnresolvedError(f"its body is {kinds}: only JSON, forms and texts can be made of a template")
