"""Convert the body of an operation into arguments of a tool and a template for the body.

The members of an object become arguments beside the parameters. Any other body (a list, alternatives, a map of
anything) becomes one argument, `body`. Form fields are encoded as the document specifies. Binary bodies, and binary
fields of multipart bodies, are files. If JSON is offered beside such a body, calls without a file send JSON.
"""

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from onetool.http.definition import MEDIA_TYPE
from onetool.http.files import FILE_SCHEMA
from onetool.http.multipart import MULTIPART
from onetool.http.template import FORM
from onetool.sources.bundles.import_names import literal, printable
from onetool.sources.bundles.openapi.arguments import MAX_DESCRIPTION, ToolArguments, field_encoding
from onetool.sources.bundles.openapi.document import OpenApiDocument, UnresolvedError
from onetool.sources.bundles.openapi.schemas import (
    Definition,
    Schemas,
    encoding_of,
    is_json,
    is_multipart,
    kind_of,
    known_media,
    samples_of,
)

MAX_MEMBERS = 200  # members that become arguments
MAX_ALL_OF_DEPTH = 8  # allOf inside of allOf

_ALWAYS_BINARY = ("application/octet-stream", "audio/", "font/", "image/", "video/")
_ONLY_REQUIRED = frozenset(("required", "type", "title", "description"))


class BodyMembers(NamedTuple):
    schemas: dict[str, Any]
    required: frozenset[str]


class BodyTemplateParts(NamedTuple):
    template: Any = None
    content_type: str | None = None  # if the template doesn't imply it
    key: Literal["body", "multipart", "bodyFile"] = "body"
    encoding: dict[str, Any] | None = None
    json: Any = None  # sent instead of a multipart body if no file is given

    @property
    def has_files(self) -> bool:
        return self.key == "bodyFile" or (
            self.key == "multipart" and any(isinstance(field, dict) for field in self.template.values())
        )


class BodyConverter:
    """A converter of one operation's body, which adds its members to the arguments of the tool."""

    def __init__(
        self,
        data: Any,
        document: OpenApiDocument,
        schemas: Schemas,
        arguments: ToolArguments,
        note: Callable[[str], None],
    ) -> None:
        body = document.object(data)
        content = body.get("content")
        self._content: dict[str, Any] = content if isinstance(content, dict) else {}
        self._required = body.get("required") is True
        self._description = body.get("description")
        self._document = document
        self._schemas = schemas
        self._arguments = arguments
        self._note = note
        self._added: dict[str, str] = {}  # the placeholders of members
        # With the schema, so that its id is not reused.
        self._known_members: dict[tuple[int, int], tuple[dict[str, Any], BodyMembers | None]] = {}

    def convert(self) -> BodyTemplateParts:
        """Return the parts of the template. Raises UnresolvedError if the body is required and can't be sent."""
        try:
            return self._convert()
        except UnresolvedError as error:
            if self._required:
                raise
            self._note(f"its optional body is left out: {error}")
            return BodyTemplateParts()

    def _convert(self) -> BodyTemplateParts:
        media_type = self._choose_media_type()
        media = self._document.object(self._content[media_type])
        if is_multipart(media_type) and (both := self._convert_json_or_form(media)):
            return both
        schema = media.get("schema", {})
        name = known_media(media_type)
        if name == FORM or is_multipart(media_type):
            return self._convert_form(media, is_multipart(media_type))
        if is_json(media_type):
            samples = self._samples(media)
            members = self._members(schema)
            if members is None or self._document.is_marked(schema, "nullable"):
                return BodyTemplateParts(self._add_body(schema, samples), name)
            template = self._add_members(members, samples)
            return BodyTemplateParts(template, None if name == "application/json" else name)
        resolved = self._document.object(schema)
        # A plain string is text, unless its media type is always binary.
        is_explicit = kind_of(resolved) != "string" or resolved.get("format") == "binary"
        if encoding_of(name) == "binary" and (is_explicit or name.startswith(_ALWAYS_BINARY)):
            return BodyTemplateParts(self._add_body(FILE_SCHEMA), None if "*" in name else name, "bodyFile")
        if not name.startswith("text/"):
            self._note(f"its body ({name}) is passed as a string")
        return BodyTemplateParts(self._add_body({"type": "string"}), name)

    def _convert_json_or_form(self, media: dict[str, Any]) -> BodyTemplateParts | None:
        """Convert a multipart form with optional files and the JSON beside it, if the document has both."""
        form = self._members(media.get("schema"))
        name = next((name for name in self._content if known_media(name) == "application/json"), None)
        if form is None or name is None:
            return None
        files = {name for name, field in form.schemas.items() if self._is_file(name, field)}
        json = self._document.object(self._content[name])
        members = self._members(json.get("schema", {}))
        required = form.required & members.required if members else frozenset[str]()
        if not files or files & required or (members and members.schemas.keys() <= files):
            return None
        if members is None:
            template: Any = self._add_body(json.get("schema", {}), self._samples(json), required=False)
        else:
            others = {name: schema for name, schema in members.schemas.items() if name not in files}
            template = self._add_members(BodyMembers(others, required), self._samples(json))
        converted = self._convert_form(media, multipart=True, required=required)
        for name, schema in members.schemas.items() if members else ():
            # A structure in JSON is something else than the file of the same name.
            if name in files and self._is_structure(schema):
                template[literal(name)] = self._arguments.add(name, "body", self._schemas.read(schema), False)
        return converted._replace(json=template)

    def _is_structure(self, schema: Any) -> bool:
        found = self._document.object(schema)
        return kind_of(found) in ("object", "array") or "allOf" in found

    def _convert_form(
        self, media: dict[str, Any], multipart: bool, required: frozenset[str] | None = None
    ) -> BodyTemplateParts:
        """Convert a urlencoded form, or a multipart form, which may have files.

        `required` replaces the names of the required fields.
        """
        schema = self._document.object(media.get("schema", {}))
        content_type: str | None = None if multipart else FORM
        key: Literal["body", "multipart"] = "multipart" if multipart else "body"
        members = self._members(schema)
        if members is None:
            if schema.get("properties") == {} and schema.get("additionalProperties") is False:
                return BodyTemplateParts()  # it has no fields
            if kind_of(schema) not in ("object", None):
                raise UnresolvedError("its form is not an object")
            whole = self._add_body({"type": "object", **schema})
            return BodyTemplateParts({"body": whole}, content_type, key, {"body": {"style": "form"}})
        fields = members.schemas.items()
        files = {name: self._file_schema(field) for name, field in fields if multipart and self._is_file(name, field)}
        required = members.required if required is None else required
        template = self._add_members(BodyMembers(members.schemas | files, required), self._samples(media))
        encoding: dict[str, Any] = {}
        for name, field in fields:
            field_name = literal(name)
            if name in files:
                template[field_name] = {"file": template[field_name]}
            if field_style := self._encoding(media, name, field, multipart):
                encoding[field_name] = field_style
        return BodyTemplateParts(template, content_type, key, encoding)

    def _encoding(self, media: dict[str, Any], name: str, schema: Any, multipart: bool) -> dict[str, Any]:
        """Return the document's encoding of a field in the format of httpImpl."""
        encodings = media.get("encoding")
        encoding = encodings.get(name) if isinstance(encodings, dict) else None
        if not isinstance(encoding, dict):
            return {}
        content_type = encoding.get("contentType")
        if isinstance(content_type, str) and (multipart or is_json(content_type)):
            # A list of media types, or `image/*`, leaves the choice to the file.
            is_one = re.fullmatch(MEDIA_TYPE, content_type) and "*" not in content_type
            return {"contentType": content_type} if is_one else {}
        if "style" not in encoding and "explode" not in encoding:
            return {}
        style, explode = encoding.get("style", "form"), encoding.get("explode")
        exploded = explode if isinstance(explode, bool) else style == "form"
        return field_encoding(style, exploded, kind_of(self._document.object(schema)))

    def _is_file(self, name: str, schema: Any) -> bool:
        """Return whether a field of a multipart body is a file, or a list of files."""
        found = self._document.object(schema)
        if kind_of(found) == "array":
            name, found = "", self._document.object(found.get("items", {}))
        if kind_of(found) != "string" or "enum" in found:
            return False
        by_media = "contentMediaType" in found and "contentEncoding" not in found
        return found.get("format") == "binary" or by_media or (name == "file" and "format" not in found)

    def _file_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of an argument that is a file, or a list of files."""
        found = self._document.object(schema)
        own = printable(found.get("description"), MAX_DESCRIPTION)
        if kind_of(found) == "array":
            return {"type": "array", "items": FILE_SCHEMA} | ({"description": own} if own else {})
        return FILE_SCHEMA | ({"description": f"{own} {FILE_SCHEMA['description']}"} if own else {})

    def _choose_media_type(self) -> str:
        """Return the media type to send: multipart if it has files, else the type that suits templates best."""
        content = self._content
        if not content:
            raise UnresolvedError("its body has no content")
        multipart = [name for name in content if known_media(name) == MULTIPART]
        for name in multipart:
            members = self._members(self._document.object(content[name]).get("schema"))
            if members is not None and any(self._is_file(*member) for member in members.schemas.items()):
                return name
        json_types = [name for name in content if known_media(name) == "application/json"] + [*filter(is_json, content)]
        forms = [name for name in content if known_media(name) == FORM]
        others = [name for name in content if known_media(name) and not is_multipart(name)]
        others = [name for name in others if not known_media(name).endswith("xml")]
        if usable := (*json_types, *forms, *multipart, *others):
            return usable[0]
        shown = ", ".join(printable(name, 60) for name in list(content)[:3])
        raise UnresolvedError(f"its body is {shown}: only JSON, forms, text and files can be sent")

    def _samples(self, media: dict[str, Any]) -> list[Any]:
        """Return the examples of a body, with their references resolved."""
        references = media.get("examples")
        if isinstance(references, dict):
            examples: dict[str, Any] = {}
            for name, example in list(references.items())[:3]:
                try:
                    examples[name] = self._document.object(example)
                except UnresolvedError:
                    continue
            media = {**media, "examples": examples}
        return samples_of(media)

    def _add_body(self, schema: Any, samples: Sequence[Any] = (), required: bool = True) -> str:
        """Add the whole body as one argument, and return its placeholder."""
        definition = self._schemas.read(schema)
        found = dict(definition.schema) if isinstance(definition.schema, dict) else {}
        if "description" not in found and (text := printable(self._description, 500)):
            found["description"] = text
        if samples and "examples" not in found:
            found["examples"] = samples
        needed = self._required and required
        return self._arguments.add("body", "body", Definition(found, definition.uses), needed)

    def _add_members(self, members: BodyMembers, samples: Sequence[Any]) -> dict[str, Any]:
        """Add an argument for each member that has none, and return all placeholders."""
        for name, schema in members.schemas.items():
            if name in self._added:
                continue
            definition = self._schemas.read(schema)
            found = definition.schema if isinstance(definition.schema, dict) else {}
            examples = [sample[name] for sample in samples if isinstance(sample, dict) and name in sample]
            if examples and "examples" not in found and "default" not in found and "enum" not in found:
                found = {**found, "examples": examples[:1]}
            needed = self._required and name in members.required
            self._added[name] = self._arguments.add(name, "body", Definition(found, definition.uses), needed)
        return {literal(name): self._added[name] for name in members.schemas}

    def _members(self, schema: Any, levels: int = MAX_ALL_OF_DEPTH) -> BodyMembers | None:
        """Return the members of a plain object, or None for other schemas and objects with unknown members."""
        found = self._document.object(schema if schema is not None else {})
        key = (id(found), levels)
        if key not in self._known_members:
            self._known_members[key] = (found, self._read_members(found, levels))
        return self._known_members[key][1]

    def _read_members(self, found: dict[str, Any], levels: int) -> BodyMembers | None:
        parts = found.get("allOf")
        if levels == 0 or kind_of(found) not in ("object", None) or not (parts or found.get("properties")):
            return None
        alternatives = [found[word] for word in ("anyOf", "oneOf") if word in found]
        # `anyOf: [{required: [a]}]` only requires members, which the server checks.
        is_plain = all(isinstance(arms, list) and all(map(_only_requires, arms)) for arms in alternatives)
        if not is_plain:
            return None
        schemas: dict[str, Any] = {}
        required: set[str] = set()
        for part in parts if isinstance(parts, list) else ():
            resolved = self._document.object(part)
            if _only_requires(resolved):
                required |= {name for name in resolved.get("required") or () if isinstance(name, str)}
                continue
            if (inner := self._members(part, levels - 1)) is None:
                return None
            schemas |= inner.schemas
            required |= inner.required
        own = found.get("properties")
        schemas |= own if isinstance(own, dict) else {}
        names = found.get("required")
        required |= {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
        if levels == MAX_ALL_OF_DEPTH:  # all parts are known
            undescribed = sorted(name for name in required if name not in schemas)
            schemas |= {name: {} for name in undescribed}
            required.difference_update(undescribed)
        is_marked = self._document.is_marked
        kept = ((name, schema) for name, schema in schemas.items() if name and not is_marked(schema, "readOnly"))
        members = dict(islice(kept, MAX_MEMBERS + 1))
        if found.get("additionalProperties"):
            if not members:
                return None
            self._note("members of its body that the document does not name can't be sent")
        return BodyMembers(members, frozenset(required)) if len(members) <= MAX_MEMBERS else None


def _only_requires(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.keys() <= _ONLY_REQUIRED
