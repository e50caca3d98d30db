"""Find the arguments and secrets of a curl command, and create templates for its query, form and body.

If in doubt, a value counts as a secret: a harmless value does no harm as a secret, but tool files with keys in them are
soon shared.
"""

import re
from itertools import count
from typing import Any
from urllib.parse import unquote_plus

import msgspec

from onetool.core.redaction import sounds_secret
from onetool.http.files import FILE_SCHEMA
from onetool.http.template import FORM
from onetool.sources.bundles.curl.command import BEGIN, END, FormField, pieces, variables
from onetool.sources.bundles.errors import InvalidError
from onetool.sources.bundles.import_names import argument_name, literal, placeholder, secret_prefix

_NAME = re.compile(
    r"(^|[-_.])(key|sig|signature|appid|apikey|appkey|authkey|session|sessionid|sid|jwt|csrf|xsrf|pin|otp|pat"
    r"|accesskey|secretkey|privatekey|clientsecret|accesstoken|authtoken|apitoken|pass|pw|code_verifier)$",
    re.IGNORECASE,
)
_NO_SECRET = frozenset(("sort-key", "sort_key", "idempotency-key", "primary_key", "partition_key"))
_LOOKS = re.compile(
    r"(sk|pk|rk)[-_](live|test|proj|ant|or)[-_A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|(AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}"
    r"|hf_[A-Za-z0-9]{20,}|ya29\.[\w-]{20,}|eyJ[\w-]{10,}\.[\w-]{5,}\.[\w-]*|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|shp[a-z]{2}_[0-9a-fA-F]{20,}|npm_[A-Za-z0-9]{30,}|key-[0-9a-f]{32}|[0-9]{6,12}:AA[\w-]{30,}"
    r"|secret_[A-Za-z0-9]{20,}"
)
_RANDOM = re.compile(r"(?=[^-]*[0-9])(?=[^-]*[A-Za-z])[A-Za-z0-9_]{32,}")
_STAND_IN = re.compile(
    r"<[^<>]*>|\{[^{}]*\}|\[[A-Z][A-Z_ ]*\]|[xX*.…]{3,}|(your|my|insert|replace|put|enter)[-_ ].*"
    r"|.*(_here|-here| here)|[A-Z]+(_[A-Z]+)*_(KEY|TOKEN|SECRET|PASSWORD)",
    re.IGNORECASE,
)


def is_credential(name: str, value: str) -> bool:
    """Return whether a value with this name is a credential."""
    return names_credential(name) or looks_secret(value)


def names_credential(name: str) -> bool:
    plain = name.rstrip("]").replace("[", "_")
    return plain.lower() not in _NO_SECRET and (sounds_secret(plain) or bool(_NAME.search(plain)))


def looks_secret(value: str) -> bool:
    return bool(_LOOKS.search(value))


def looks_random(segment: str) -> bool:
    """Return whether a path segment is a long word of letters and digits. (With dashes it is usually an id.)"""
    return bool(_LOOKS.search(segment) or _RANDOM.fullmatch(segment))


class CommandSecrets:
    """The secrets of a command by name. A value is None if the command does not contain it."""

    def __init__(self, host: str, variables: dict[str, str]) -> None:
        self._prefix = secret_prefix(_host_word(host))
        self._variables = variables  # variables set in the command itself
        self.found: dict[str, str | None] = {}

    def take(self, value: str, word: str, taken: set[str] | frozenset[str] = frozenset()) -> str:
        """Return the placeholder for a value. Variables keep their names; other values are named after the host."""
        names = variables(value)
        if len(names) == 1 and len(pieces(value)) == 1:
            return self.variable(names[0])
        # Documentation has stand-ins such as `YOUR_API_KEY`, `<token>` and `xxx`.
        text = None if names or _STAND_IN.fullmatch(value.strip()) else value
        base = name = word if word.startswith(f"{self._prefix}_") else f"{self._prefix}_{word}"
        number = 1
        while name in taken or self.found.get(name, text) != text:
            number += 1
            name = f"{base}_{number}"
        self.found[name] = text
        return f"${{{name}}}"

    def variable(self, name: str) -> str:
        self.found[name] = self._variables.get(name)
        return f"${{{name}}}"


def word_for(name: str) -> str:
    """Return the part of a secret's name after the host: `API_KEY` for `x-api-key`."""
    word = re.sub(r"[^A-Z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()).strip("_")
    word = word.removeprefix("X_")
    return {"KEY": "API_KEY", "APIKEY": "API_KEY", "APPID": "API_KEY"}.get(word, word[:40]) or "SECRET"


def _host_word(host: str) -> str:
    """Return the main word of a host: `openai` for `api.openai.com`, `localhost` for `localhost:9000`."""
    labels = host.rpartition("@")[2].split(":")[0].split(".")
    if labels[-1].isdigit() or "[" in host:
        return "api"
    names = [label for label in labels[:-1] if label not in ("api", "www", "app", "co", "com", "rest", "gateway")]
    return (names or labels)[-1]


# Arguments

UNQUOTED = ["string", "number", "boolean"]


class ArgumentCollector:
    def __init__(self, secrets: CommandSecrets) -> None:
        self._secrets = secrets
        self._properties: dict[str, dict[str, Any]] = {}
        self._required: list[str] = []
        self._placeholders: dict[str, str] = {}
        self._unquoted: set[str] = set()

    def unquoted(self, name: str) -> None:
        """Record a variable without quotes in JSON, which is probably a number."""
        self._unquoted.add(name)

    def template(self, text: str, required: bool) -> str:
        """Convert a string. Shell variables become secrets if their names suggest that, else arguments."""
        parts = (self.placeholder(part, required) if is_name else literal(part) for part, is_name in pieces(text))
        return "".join(parts)

    def placeholder(self, name: str, required: bool) -> str:
        """Return the placeholder of an argument. Equal names give the same argument."""
        if names_credential(name):
            return self._secrets.variable(argument_name(name).upper())
        if name not in self._placeholders:
            plain = argument_name(name)
            chosen = self._free(plain.lower() if plain.isupper() else plain)
            self._properties[chosen] = {"type": UNQUOTED if name in self._unquoted else "string"}
            self._placeholders[name] = chosen
        chosen = self._placeholders[name]
        if required and chosen not in self._required:
            self._required.append(chosen)
        return placeholder(chosen)

    def sample(self, name: str, value: Any) -> str:
        """Add an optional argument whose default is the command's value."""
        chosen = self._free(argument_name(name))
        self._properties[chosen] = {**_type_schema(value), "default": value}
        return placeholder(chosen)

    def file(self, name: str, path: str) -> str:
        """Add an argument for a file. It has no default: the path belongs to the author of the command."""
        chosen = self._free(argument_name(name))
        example = path.replace("\\", "/").rpartition("/")[2]
        self._properties[chosen] = FILE_SCHEMA | ({"examples": [example]} if example and BEGIN not in path else {})
        self._required.append(chosen)
        return placeholder(chosen)

    def text(self, name: str) -> str:
        """Add an argument for text that the command reads from a file."""
        chosen = self._free(argument_name(name))
        self._properties[chosen] = {"type": "string"}
        self._required.append(chosen)
        return placeholder(chosen)

    def defaults(self) -> dict[str, Any]:
        return {name: schema["default"] for name, schema in self._properties.items() if "default" in schema}

    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": self._properties}
        return {**schema, "required": self._required} if self._required else schema

    def _free(self, name: str) -> str:
        words = (name if number == 1 else f"{name}_{number}" for number in count(1))
        return next(word for word in words if word not in self._properties and word not in self._secrets.found)


def shell_text(text: str) -> str:
    """Return the readable text, with variables as written."""
    return "".join(f"${part}" if is_name else part for part, is_name in pieces(text))


def number_in(text: str) -> Any:
    """Return a query value as a number if it looks like one; `007` stays a string."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and abs(value) < 2**53:
            return value
    return text


def _type_schema(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, list):
        return {"type": "array"}
    names = {str: "string", int: "integer", float: "number", dict: "object"}
    return {"type": names[type(value)]} if type(value) in names else {}


# Templates of pairs and bodies

JSON = "application/json"
MAX_DEPTH = 50

_PLACE = re.compile(r"\{([A-Za-z_][^{}/]{0,59})\}|<([A-Za-z_][^<>/]{0,59})>|:([A-Za-z_][A-Za-z0-9_]{0,59})")
_BARE = re.compile(f"(?<=[:,\\[])\\s*({BEGIN}[^{END}]*{END})\\s*(?=[,}}\\]])")


class CommandPairs:
    """A collector of pairs (`a=1&b=2`), escaped or by name, into a template."""

    def __init__(self, arguments: ArgumentCollector, secrets: CommandSecrets) -> None:
        self._arguments = arguments
        self._secrets = secrets
        self._pairs: dict[str, list[str]] = {}

    def add_query(self, text: str) -> None:
        for part in text.split("&"):
            name, _, value = part.partition("=")
            if part:
                self._pairs.setdefault(_unescaped(name), []).append(_unescaped(value))

    def add(self, text: str) -> None:
        name, _, value = text.partition("=")
        self._pairs.setdefault(name, []).append(value)

    def template(self) -> dict[str, Any]:
        return {literal(_plain(name)): self._value(_plain(name), values) for name, values in self._pairs.items()}

    def _value(self, name: str, values: list[str]) -> Any:
        if len(values) > 1:
            if any(BEGIN in value or is_credential(name, value) for value in values):
                return [self.one(name, value) for value in values]
            return self._arguments.sample(name, values)
        return self.one(name, values[0])

    def one(self, name: str, value: str) -> str:
        if is_credential(name, value):
            return self._secrets.take(value, word_for(name))
        if found := _PLACE.fullmatch(value):
            return self._arguments.placeholder(next(part for part in found.groups() if part), required=False)
        if BEGIN in value:
            return self._arguments.template(value, required=False)
        return self._arguments.sample(name, number_in(value))


def multipart_of(
    fields: list[FormField], arguments: ArgumentCollector, secrets: CommandSecrets
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of a multipart body as a template, and their encoding."""
    made: dict[str, list[Any]] = {}
    encoding: dict[str, Any] = {}
    texts = CommandPairs(arguments, secrets)
    for field in fields:
        name = literal(_plain(field.name))
        if field.kind == "file":
            value: Any = {"file": arguments.file(field.name, field.value)}
            if field.filename:
                value["filename"] = arguments.template(field.filename, required=True)
        else:
            value = arguments.text(field.name) if field.kind == "text_file" else texts.one(field.name, field.value)
        made.setdefault(name, []).append(value)
        if field.media_type:
            encoding[name] = {"contentType": shell_text(field.media_type)}
    return {name: values[0] if len(values) == 1 else values for name, values in made.items()}, encoding


def body_of(
    data: list[tuple[str, str]],
    content_type: str | None,
    arguments: ArgumentCollector,
    secrets: CommandSecrets,
    notes: list[str],
) -> tuple[Any, str | None]:
    """Return the body as a template, and its Content-Type if the command doesn't set one."""
    kinds = {kind for kind, _ in data}
    joined = "".join(text for _, text in data) if "json" in kinds else "&".join(text for _, text in data)
    media = (content_type or "").partition(";")[0].strip().lower()
    is_json = "json" in kinds or media == JSON or media.endswith("+json")
    looks_like_json = joined.lstrip()[:1] in ("{", "[") and "pair" not in kinds
    if is_json or (looks_like_json and media in ("", FORM)):
        try:  # with unquoted variables as strings for now
            value, is_valid = msgspec.json.decode(_BARE.sub(r'"\1"', joined)), True
        except (msgspec.DecodeError, RecursionError, ValueError):
            value, is_valid = None, False
        if is_valid:
            for bare in _BARE.findall(joined):
                arguments.unquoted(bare.removeprefix(BEGIN).removesuffix(END))
            if not is_json:
                notes.append("the body is JSON, and is sent as JSON")
            return _json_body(value, arguments, secrets, media)
        if is_json:
            raise InvalidError("the body is not JSON, though the command says so; check its quotes")
    if media in ("", FORM):
        pairs = CommandPairs(arguments, secrets)
        for kind, text in data:
            (pairs.add if kind == "pair" else pairs.add_query)(text)
        return pairs.template(), FORM
    if media.startswith("multipart/"):
        raise InvalidError("multipart bodies are not supported; write the fields with -F name=text or -F name=@path")
    if looks_secret(joined):
        raise InvalidError("the body has a secret in it, and is neither JSON nor a form; put $NAME in its place")
    return arguments.template(joined, required=True), None


def _json_body(value: Any, arguments: ArgumentCollector, secrets: CommandSecrets, media: str) -> tuple[Any, str | None]:
    """Convert members into arguments, unless they contain a secret or a placeholder."""
    content_type = None if media else JSON
    if isinstance(value, dict):
        body: dict[str, Any] = {}
        for name, member in value.items():
            if _is_fixed(_plain(name), member, 0):
                body[literal(name)] = _inside(name, member, arguments, secrets, 0)
            else:
                body[literal(name)] = arguments.sample(name, member)
        return body, content_type
    if _is_fixed("", value, 0):
        return _inside("", value, arguments, secrets, 0), content_type
    return arguments.sample("body", value), content_type


def _is_fixed(name: str, value: Any, depth: int) -> bool:
    if depth > MAX_DEPTH:
        raise InvalidError("the body is nested too deep")
    if isinstance(value, dict):
        return any(_is_fixed(key, member, depth + 1) for key, member in value.items())
    if isinstance(value, list):
        return any(_is_fixed(name, member, depth + 1) for member in value)
    return isinstance(value, str) and (BEGIN in value or (bool(value) and is_credential(name, value)))


def _inside(name: str, value: Any, arguments: ArgumentCollector, secrets: CommandSecrets, depth: int) -> Any:
    if isinstance(value, dict):
        return {
            literal(_plain(key)): _inside(key, member, arguments, secrets, depth + 1) for key, member in value.items()
        }
    if isinstance(value, list):
        return [_inside(name, member, arguments, secrets, depth + 1) for member in value]
    if not isinstance(value, str):
        return value
    if value and is_credential(name, value):
        return secrets.take(value, word_for(name or "secret"))
    return arguments.template(value, required=True)


def _unescaped(text: str) -> str:
    """Decode the escapes of a string, and keep the marks of variables."""
    return "".join(f"{BEGIN}{part}{END}" if is_name else unquote_plus(part) for part, is_name in pieces(text))


def _plain(name: str) -> str:
    if BEGIN in name:
        raise InvalidError("a name in the query or the body is a variable; write the name itself")
    return name
