"""Names for imported tools, bundles, versions, arguments and secrets, and the document's strings as template literals.

The names in a document are untrusted: slugs contain only letters, digits and dashes, other strings only printable
characters, and no string of a document is ever used as a placeholder.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from onetool.sources.bundles.names import CAMEL, MAX_SLUG, fits

MAX_TITLE = 120
MAX_DESCRIPTION = 600
MAX_WORDS = 6  # of a summary, in a slug

_POSSESSIVE = re.compile(r"['’]s\b", re.IGNORECASE)
_ASIDE = re.compile(r"\s[-–—+|]\s|[:(\[]")
# fmt: off
_NOISE = frozenset((
    "a", "an", "and", "api", "apis", "definition", "description", "document", "documentation", "for", "latest", "of",
    "official", "open", "openapi", "public", "reference", "rest", "restful", "schema", "service", "services", "spec",
    "specification", "swagger", "the", "v1", "v2", "v3", "v4", "version", "web",
))
_SMALL = frozenset(("a", "all", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"))
# fmt: on
_ARTICLES = frozenset(("a", "an", "the"))
_SHORTER = {
    "application": "app",
    "applications": "apps",
    "configuration": "config",
    "configurations": "configs",
    "environment": "env",
    "organization": "org",
    "organizations": "orgs",
    "repositories": "repos",
    "repository": "repo",
}
_PARAMETER = re.compile(r"\{[^{}]*\}")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_VERSION_PART = re.compile(r"v[0-9]+([._-]?[0-9a-z]+)?|[0-9]+(\.[0-9]+)*|api", re.IGNORECASE)
_VERBS = {"get": "get", "put": "update", "patch": "update", "post": "create", "delete": "delete"}


def slug_of(text: str) -> str:
    """Convert `getPetById`, `repos/get`, `Pets_List` to `get-pet-by-id`, `repos-get`, `pets-list`, or to ""."""
    words = _slug_words(text)
    return _join_words(words) if words else ""


def operation_slug(operation_id: Any, method: str, path: str, verb: str | None = None, summary: Any = None) -> str:
    """Return a slug for an operation, from its id, or from its verb (such as the method) and path.

    If the path contains no name (`/`, `/v1/{city}`), the summary is preferred.
    """
    if isinstance(operation_id, str):
        operation_id = operation_id[:500]
        # Some frameworks append the path and the method: `read_item_items__item_id__get`.
        suffix = re.sub(r"\W", "_", path) + f"_{method}"
        if slug := slug_of(operation_id.removesuffix(suffix) or operation_id):
            return slug
    if isinstance(summary, str) and not _nouns(path):
        words = [word for word in _slug_words(summary) if word not in _ARTICLES]
        if words:
            return _join_words(words[:MAX_WORDS])
    return path_slug(verb or method, path)


def path_slug(method: str, path: str, by: bool = False) -> str:
    """Convert `GET /pets/{petId}` to `get-pet` (or `get-pet-by-pet-id`), `POST /users/{id}/keys` to `create-user-key`.

    If a path contains no names, its parameters are used: `GET /v1/{city}` gives `get-city`.
    """
    words = _nouns(path)
    is_plural = bool(words) and _singular(words[-1]) != words[-1] and not path.split("?")[0].rstrip("/").endswith("}")
    verb = _VERBS.get(method, method)
    parameters = _slug_words(" ".join(_PARAMETER.findall(path)))
    if method == "get" and is_plural:
        verb = "list"
    elif method == "post" and not is_plural:
        verb = "post"
    elif method == "post":
        words[-1] = _singular(words[-1])
    if not words:
        return _join_words([verb, *(parameters or _slug_words(path) or ["root"])])
    return _join_words([verb, *words, *(["by", *parameters] if by and parameters else [])])


def _nouns(path: str) -> list[str]:
    """Return the nouns of a path, without versions and parameters, in the singular before a parameter."""
    parts = [part for part in path.split("?")[0].split("/") if part and not _VERSION_PART.fullmatch(part)]
    words: list[str] = []
    for index, part in enumerate(parts):
        if "{" in part and not _PARAMETER.sub("", part):
            continue
        is_followed = index + 1 < len(parts) and parts[index + 1].startswith("{")
        own = _slug_words(_PARAMETER.sub(" ", part))
        words += [*own[:-1], _singular(own[-1])] if own and is_followed else own
    return words


def bundle_slug(title: str, host: str = "") -> str:
    """Convert `Swagger Petstore - OpenAPI 3.0` to `petstore`. Use the host if the title has no useful words."""
    for text in (_ASIDE.split(title)[0], title):
        # A camel-case brand is one word.
        words = [word for word in _slug_words(_POSSESSIVE.sub("", text).lower()) if word not in _NOISE]
        if words := [word for word in words if not word.isdigit()]:
            return _join_words(words[:4])
    labels = [label for label in host.split(":")[0].split(".")[:-1] if label not in ("api", "www")]
    return slug_of(labels[-1] if labels else host) or "api"


def version_label(text: Any) -> str:
    """Derive a version from a string: `v1 (beta)` gives `v1-beta`; `1.0.27-SNAPSHOT` is unchanged."""
    text = unicodedata.normalize("NFC", str(text or "")[:500])
    label = "".join(sign if sign == "." or fits(sign) else "-" for sign in text)
    return re.sub(r"-{2,}", "-", label)[:MAX_SLUG].strip("-.") or "1"


class UniqueSlugs:
    """A set of unique slugs: a duplicate gets an alternative slug or a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last number for a slug

    def __contains__(self, slug: str) -> bool:
        return slug in self._taken

    def take(self, slugs: Iterable[str]) -> str:
        """Return the first slug that isn't taken yet, or else the first slug with a number appended."""
        first = ""
        for slug in slugs:
            if slug and slug not in self._taken:
                self._taken.add(slug)
                return slug
            first = first or slug
        short = first[: MAX_SLUG - 8].rstrip("-")
        while True:
            number = self._numbers[short] = self._numbers.get(short, 1) + 1
            if (numbered := f"{short}-{number}") not in self._taken:
                self._taken.add(numbered)
                return numbered


def argument_name(name: str) -> str:
    """Return an identifier: `filter[name]`, `X-Request-ID`, `$top` give `filter_name`, `X_Request_ID`, `top`.

    `created>` and `created<=` give `created_gt` and `created_lte`.
    """
    name = re.sub(r"([<>])(=?)", lambda found: f" {'lt' if found[1] == '<' else 'gt'}{'e' if found[2] else ''} ", name)
    word = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") if not name.isidentifier() or not name.isascii() else name
    if not word:
        word = "_".join(part for part in _slug_words(name) if part.isascii()) or "arg"
    return (f"arg_{word}" if word[0].isdigit() else word)[:MAX_SLUG]


def secret_prefix(slug: str) -> str:
    """Convert `pet-store` to `PET_STORE`, `süd` to `SUD`."""
    letters = "".join(sign for sign in unicodedata.normalize("NFKD", slug) if not unicodedata.combining(sign))
    word = re.sub(r"[^A-Z0-9]+", "_", letters.upper()).strip("_")
    return f"API_{word}" if not word or word[0].isdigit() else word


class _Visible(dict[int, int]):
    """A table for `str.translate` with spaces for characters that can't be printed."""

    def __missing__(self, code: int) -> int:
        self[code] = code if chr(code).isprintable() else 32
        return self[code]


_VISIBLE = _Visible()


def printable(text: Any, limit: int) -> str:
    """Return one printable line of text, cut between words."""
    if not isinstance(text, str):
        return ""
    text = text[: 4 * limit]
    line = " ".join((text if text.isprintable() else text.translate(_VISIBLE)).split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rsplit(" ", 1)[0].rstrip(",;:.") + "…"


def title(text: Any) -> str:
    return printable(text, MAX_TITLE).rstrip(".")


def described(summary: Any, description: Any) -> str:
    """Join the summary with the first paragraph of the description, without repeating it."""
    head = printable(summary, MAX_TITLE)
    paragraphs = re.split(r"\n\s*\n|<br\s*/?>|</p>", description[:4000].strip()) if isinstance(description, str) else []
    plain = (re.sub(r"<[^<>]{1,200}>", " ", part) for part in paragraphs)
    first = next((part for part in plain if part.strip() and not part.lstrip().startswith("#")), "")
    body = printable(first, MAX_DESCRIPTION)
    if not body or not head:
        return body or head
    if body.lower().rstrip(".").startswith(head.lower().rstrip(".")):
        return body
    return printable(f"{head.rstrip('.')}. {body}", MAX_DESCRIPTION)


def tags_of(tags: Any, *more: str) -> list[str]:
    texts = [printable(tag, MAX_SLUG) for tag in tags] if isinstance(tags, list) else []
    return list(dict.fromkeys(tag for tag in [*texts[:16], *more] if tag))


def _slug_words(text: str) -> list[str]:
    """Return lower-case words of letters and digits, split at other characters and within camelCase."""
    text = CAMEL.sub("-", unicodedata.normalize("NFC", text[:500]))
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    kept = "".join(sign if fits(sign) else "-" for sign in text.lower())
    kept = unicodedata.normalize("NFC", "".join(sign if fits(sign) else "-" for sign in kept))
    return [word for word in kept.split("-") if word]


def _join_words(words: Iterable[str]) -> str:
    """Shorten to 64 characters: drop repeated words, abbreviate, drop articles, then drop the last words."""
    words = list(words)
    if len("-".join(words)) > MAX_SLUG:
        words = list(dict.fromkeys(words))
    if len("-".join(words)) > MAX_SLUG:
        words = [_SHORTER.get(word, word) for word in words]
    if len("-".join(words)) > MAX_SLUG:
        words = [word for word in words if word not in _SMALL]
    while len(words) > 1 and len("-".join(words)) > MAX_SLUG:
        words.pop()
    return "-".join(words)[:MAX_SLUG].strip("-")


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3 else word


# Escaping strings in templates

_DOLLARS = re.compile(r"\$+(?=\{)")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


def literal(text: str) -> str:
    return _DOLLARS.sub(lambda found: found[0] * 2, text)


def placeholder(name: str) -> str:
    return f"${{{name}}}"


def is_header_name(text: str) -> bool:
    return bool(_HEADER.fullmatch(text))
