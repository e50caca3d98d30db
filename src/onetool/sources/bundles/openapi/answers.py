"""The answers of an operation -> how they are read, and what they look like."""

from typing import Any, NamedTuple

from onetool.sources.bundles.openapi.document import Document, Unresolved
from onetool.sources.bundles.openapi.media import encoding_of, is_json, known_media
from onetool.sources.bundles.openapi.schemas import Definition, Schemas

MOST = 4  # descriptions of what may come
_ORDER = ("json", "sse", "text", "binary")
_ANYTHING = Definition({}, ())


class Answer(NamedTuple):
    encoding: str
    schema: Definition
    accept: str | None = None  # the media type to ask for
    redirects: bool = False  # it says only where the answer is


def answer_of(given: Any, document: Document, schemas: Schemas) -> Answer:
    """Of what an operation says about its answers: the good ones, JSON before anything else."""
    responses = _good(given, document)
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for response in responses:
        content = response.get("content")
        for media_type, media in (content if isinstance(content, dict) else {}).items():
            if known_media(media_type) and isinstance(media, dict):
                found.setdefault(encoding_of(media_type), []).append((media_type, media))
    encoding = next((one for one in _ORDER if one in found), None)
    if encoding is None:
        return Answer("json", _ANYTHING, redirects=not responses and _redirects(given))
    types = [known_media(one) for one, _ in found[encoding]]
    accept = "application/json" if "application/json" in types else types[0]
    if encoding != "json":
        return Answer(encoding, Definition({"type": "string"}, ()) if encoding == "text" else _ANYTHING, accept)
    empty = any(not response.get("content") for response in responses)
    return Answer("json", _schema([media for one, media in found["json"] if is_json(one)], schemas, empty), accept)


def _good(given: Any, document: Document) -> list[dict[str, Any]]:
    responses = given if isinstance(given, dict) else {}
    codes = [code for code in responses if str(code)[:1] == "2"] or [code for code in responses if code == "default"]
    found: list[dict[str, Any]] = []
    for code in codes[:MOST]:
        try:
            found.append(document.object(responses[code]))
        except Unresolved:
            continue
    return found


def _redirects(given: Any) -> bool:
    return isinstance(given, dict) and any(str(code)[:1] == "3" for code in given)


def _schema(media: list[dict[str, Any]], schemas: Schemas, empty: bool) -> Definition:
    """One of them, or any of several."""
    read = [schemas.read(one["schema"], "out") for one in media if "schema" in one]
    if len(read) < len(media):
        return _ANYTHING
    different = list({str(one.schema): one for one in read}.values())[:MOST]
    if len(different) > 1:
        uses = tuple(name for one in different for name in one.uses)
        return Definition({"anyOf": [one.schema for one in different]}, uses)
    return different[0] if empty else _something(different[0], schemas)


def _something(definition: Definition, schemas: Schemas) -> Definition:
    """Inside of an answer everything may be null, but the answer itself is something."""
    ref = definition.schema.get("$ref")
    if isinstance(ref, str):
        definition = schemas.definitions[ref.removeprefix("#/$defs/")]
    types = definition.schema.get("type")
    if not isinstance(types, list):
        return definition
    kept = [one for one in types if one != "null"]
    return Definition({**definition.schema, "type": kept[0] if len(kept) == 1 else kept or "null"}, definition.uses)
