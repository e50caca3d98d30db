"""Pairs of a query or a form, and bodies of a command, as templates with arguments."""

import re
from typing import Any
from urllib.parse import unquote_plus

import msgspec

from onetool.sources.bundles.curl.credentials import Secrets, is_credential, looks_secret, word_for
from onetool.sources.bundles.curl.filling import Filling, number_in
from onetool.sources.bundles.curl.words import BEGIN, END, pieces
from onetool.sources.bundles.errors import Invalid
from onetool.sources.bundles.openapi.templates import as_it_is

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
DEEPEST = 50

_PLACE = re.compile(r"\{([A-Za-z_][^{}/]{0,59})\}|<([A-Za-z_][^<>/]{0,59})>|:([A-Za-z_][A-Za-z0-9_]{0,59})")
_BARE = re.compile(f"(?<=[:,\\[])\\s*({BEGIN}[^{END}]*{END})\\s*(?=[,}}\\]])")


class Pairs:
    """`a=1&b=2`, as it is written or by name, collected into a template."""

    def __init__(self, filling: Filling, secrets: Secrets) -> None:
        self._filling = filling
        self._secrets = secrets
        self._pairs: dict[str, list[str]] = {}

    def written(self, text: str) -> None:
        """With its escapes."""
        for part in text.split("&"):
            name, _, value = part.partition("=")
            if part:
                self._pairs.setdefault(_unescaped(name), []).append(_unescaped(value))

    def named(self, text: str) -> None:
        name, _, value = text.partition("=")
        self._pairs.setdefault(name, []).append(value)

    def taken(self) -> dict[str, Any]:
        return {as_it_is(_plain(name)): self._value(_plain(name), values) for name, values in self._pairs.items()}

    def _value(self, name: str, values: list[str]) -> Any:
        if len(values) > 1:
            if any(BEGIN in value or is_credential(name, value) for value in values):
                return [self._one(name, value) for value in values]
            return self._filling.sample(name, values)
        return self._one(name, values[0])

    def _one(self, name: str, value: str) -> str:
        if is_credential(name, value):
            return self._secrets.take(value, word_for(name))
        if found := _PLACE.fullmatch(value):
            return self._filling.placeholder(next(part for part in found.groups() if part), required=False)
        if BEGIN in value:
            return self._filling.template(value, required=False)
        return self._filling.sample(name, number_in(value))


def body_of(
    data: list[tuple[str, str]], said: str | None, filling: Filling, secrets: Secrets, notes: list[str]
) -> tuple[Any, str | None]:
    """The body as a template, and its Content-Type where the command leaves that to curl."""
    kinds = {kind for kind, _ in data}
    joined = "".join(text for _, text in data) if "json" in kinds else "&".join(text for _, text in data)
    media = (said or "").partition(";")[0].strip().lower()
    is_json = "json" in kinds or media == JSON or media.endswith("+json")
    looks_like_it = joined.lstrip()[:1] in ("{", "[") and "pair" not in kinds
    if is_json or (looks_like_it and media in ("", FORM)):
        found = _json(joined)
        if found is not None:
            for bare in _BARE.findall(joined):
                filling.unquoted(bare.removeprefix(BEGIN).removesuffix(END))
            if not is_json:
                notes.append("the body is JSON, and is sent as JSON")
            return _json_body(found[0], filling, secrets, media)
        if is_json:
            raise Invalid("the body is no JSON, and the command says it is; check its quotes")
    if media in ("", FORM):
        pairs = Pairs(filling, secrets)
        for kind, text in data:
            (pairs.named if kind == "pair" else pairs.written)(text)
        return pairs.taken(), FORM
    if media.startswith("multipart/"):
        raise Invalid("multipart bodies can't be made by a tool; if the API takes JSON or a plain form, use that")
    if looks_secret(joined):
        raise Invalid("the body has a secret in it, and is neither JSON nor a form; put $NAME in its place")
    return filling.template(joined, required=True), None


def _json(text: str) -> tuple[Any] | None:
    """The value; a variable that stands bare is a text for now."""
    try:
        return (msgspec.json.decode(_BARE.sub(r'"\1"', text)),)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _json_body(value: Any, filling: Filling, secrets: Secrets, media: str) -> tuple[Any, str | None]:
    if isinstance(value, dict):
        body = {as_it_is(_plain(name)): _member(_plain(name), one, filling, secrets) for name, one in value.items()}
        return body, None if media else JSON
    if _is_fixed("", value, 0):
        return _inside("", value, filling, secrets, 0), None if media else JSON
    return filling.sample("body", value), None if media else JSON


def _member(name: str, value: Any, filling: Filling, secrets: Secrets) -> Any:
    """An argument; or as it is, where there is a secret or a placeholder inside of it."""
    if _is_fixed(name, value, 0):
        return _inside(name, value, filling, secrets, 0)
    return filling.sample(name, value)


def _is_fixed(name: str, value: Any, depth: int) -> bool:
    if depth > DEEPEST:
        raise Invalid("the body is nested too deep")
    if isinstance(value, dict):
        return any(_is_fixed(key, one, depth + 1) for key, one in value.items())
    if isinstance(value, list):
        return any(_is_fixed(name, one, depth + 1) for one in value)
    return isinstance(value, str) and (BEGIN in value or (bool(value) and is_credential(name, value)))


def _inside(name: str, value: Any, filling: Filling, secrets: Secrets, depth: int) -> Any:
    if isinstance(value, dict):
        return {as_it_is(_plain(key)): _inside(key, one, filling, secrets, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_inside(name, one, filling, secrets, depth + 1) for one in value]
    if not isinstance(value, str):
        return value
    if value and is_credential(name, value):
        return secrets.take(value, word_for(name or "secret"))
    return filling.template(value, required=True)


def _unescaped(text: str) -> str:
    """Without its escapes; marks of variables stay."""
    return "".join(f"{BEGIN}{part}{END}" if is_name else unquote_plus(part) for part, is_name in pieces(text))


def _plain(name: str) -> str:
    if BEGIN in name:
        raise Invalid("a name in the query or the body is a variable; write the name itself")
    return name
