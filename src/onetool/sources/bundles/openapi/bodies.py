"""The body of an operation -> arguments, and the body of the request.

The members of an object become arguments of their own, beside the parameters: that is what people would write. Where
the body is no plain object (a list, alternatives, a map of anything), it is one argument, `body`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from onetool.sources.bundles.openapi.arguments import Arguments
from onetool.sources.bundles.openapi.document import Document, Unresolved
from onetool.sources.bundles.openapi.keywords import samples_of
from onetool.sources.bundles.openapi.media import FORM, is_json, is_multipart, is_xml, kind_of, known_media
from onetool.sources.bundles.openapi.naming import clean
from onetool.sources.bundles.openapi.schemas import Definition, Schemas
from onetool.sources.bundles.openapi.templates import as_it_is

MOST = 200  # members that become arguments
DEEPEST = 8  # allOf inside of allOf

_ONLY_REQUIRED = frozenset(("required", "type", "title", "description"))


class Members(NamedTuple):
    schemas: dict[str, Any]
    required: frozenset[str]


class Body(NamedTuple):
    template: Any = None
    content_type: str | None = None  # where the template alone does not say it


class Bodies:
    def __init__(self, document: Document, schemas: Schemas, note: Callable[[str], None]) -> None:
        self._document = document
        self._schemas = schemas
        self._note = note

    def put(self, given: Any, arguments: Arguments) -> Body:
        """Take the body of one operation."""
        body = self._document.object(given)
        required = body.get("required") is True
        content = body.get("content")
        try:
            return self._put(content if isinstance(content, dict) else {}, required, body.get("description"), arguments)
        except Unresolved as error:
            if required:
                raise
            self._note(f"its optional body is left out: {error}")
            return Body()

    def _put(self, content: dict[str, Any], required: bool, description: Any, arguments: Arguments) -> Body:
        media_type = _chosen(content)
        media = self._document.object(content[media_type])
        samples = self._samples(media)
        name = known_media(media_type)
        if is_json(media_type):
            members = self._members(media.get("schema"), DEEPEST)
            if members is None:
                return Body(self._whole(media.get("schema", {}), required, description, samples, arguments), name)
            template = self._flat(members, required, samples, arguments)
            return Body(template, None if name == "application/json" else name)
        if name == FORM:
            members = self._members(media.get("schema"), DEEPEST)
            if members is None:
                raise Unresolved("a form without known members can't be made")
            return Body(self._flat(self._flat_only(members), required, samples, arguments), FORM)
        if not name.startswith("text/"):
            self._note(f"its body ({name}) is given as a text")
        return Body(self._whole({"type": "string"}, required, description, [], arguments), name)

    def _samples(self, media: dict[str, Any]) -> list[Any]:
        """Examples may be references."""
        named = media.get("examples")
        if isinstance(named, dict):
            found: dict[str, Any] = {}
            for name, one in list(named.items())[:3]:
                try:
                    found[name] = self._document.object(one)
                except Unresolved:
                    continue
            media = {**media, "examples": found}
        return samples_of(media)

    def _whole(self, schema: Any, required: bool, description: Any, samples: list[Any], arguments: Arguments) -> str:
        definition = self._schemas.read(schema, "in")
        found = dict(definition.schema) if isinstance(definition.schema, dict) else {}
        if "description" not in found and (text := clean(description, 500)):
            found["description"] = text
        if samples and "examples" not in found:
            found["examples"] = samples
        return arguments.add("body", "body", Definition(found, definition.uses), required)

    def _flat(self, members: Members, required: bool, samples: list[Any], arguments: Arguments) -> dict[str, Any]:
        template: dict[str, Any] = {}
        for name, schema in members.schemas.items():
            definition = self._schemas.read(schema, "in")
            found = definition.schema if isinstance(definition.schema, dict) else {}
            said = [one[name] for one in samples if isinstance(one, dict) and name in one]
            if said and "examples" not in found and "default" not in found and "enum" not in found:
                found = {**found, "examples": said[:1]}
            needed = required and name in members.required
            template[as_it_is(name)] = arguments.add(name, "body", Definition(found, definition.uses), needed)
        return template

    def _flat_only(self, members: Members) -> Members:
        """What a form can carry: texts, numbers, and lists of them."""
        kept: dict[str, Any] = {}
        for name, schema in members.schemas.items():
            if self._is_flat(schema):
                kept[name] = schema
            elif name in members.required:
                raise Unresolved(f"its form has an object in it ({name[:60]!r}), which has no form of its own")
            else:
                self._note(f"{name[:60]!r} of its form is left out: it is an object")
        return Members(kept, members.required)

    def _is_flat(self, schema: Any) -> bool:
        found = self._document.object(schema)
        if kind_of(found) == "array":
            found = self._document.object(found.get("items", {}))
            return kind_of(found) not in ("object", "array")
        return kind_of(found) != "object" and not any(word in found for word in ("allOf", "anyOf", "oneOf"))

    def _members(self, schema: Any, levels: int) -> Members | None:
        """Of a plain object; None where it is anything else, or may have members that nobody knows."""
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
        return Members(kept, frozenset(required)) if len(kept) <= MOST else None

    def _part(self, part: Any, levels: int) -> Members | None:
        """One of allOf may also say nothing but what is required."""
        found = self._document.object(part)
        if found.keys() <= _ONLY_REQUIRED:
            return Members({}, frozenset(name for name in found.get("required") or () if isinstance(name, str)))
        return self._members(part, levels)

    def _is_read_only(self, schema: Any) -> bool:
        try:
            return self._document.object(schema).get("readOnly") is True
        except Unresolved:
            return False


def _says_only_required(arms: Any) -> bool:
    """`anyOf: [{required: [a]}, {required: [b]}]` is left to the server to check."""
    return isinstance(arms, list) and all(isinstance(arm, dict) and arm.keys() <= _ONLY_REQUIRED for arm in arms)


def _chosen(content: dict[str, Any]) -> str:
    """The media type that a template can write best."""
    if not content:
        raise Unresolved("its body has no content")
    for fits in (lambda one: known_media(one) == "application/json", is_json, lambda one: known_media(one) == FORM):
        for media_type in content:
            if fits(media_type):
                return media_type
    plain = [one for one in content if known_media(one) and not is_multipart(one) and not is_xml(one)]
    if plain:
        return plain[0]
    kinds = ", ".join(clean(one, 60) for one in list(content)[:3])
    raise Unresolved(f"its body is {kinds}: only JSON, forms and texts can be made of a template")
