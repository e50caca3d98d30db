"""What in a request is a credential: by its name, by its looks. Each becomes a secret, and its value leaves the tool.

When in doubt it is one: a secret that is none can be given any value, but a key in a file of tools is soon on somebody
else's disk.
"""

import re

from onetool.core.secrecy import sounds_secret
from onetool.sources.bundles.curl.words import pieces, variables
from onetool.sources.bundles.openapi.naming import secret_prefix

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
    """Whether what stands under this name is one."""
    return names_credential(name) or looks_secret(value)


def names_credential(name: str) -> bool:
    plain = name.rstrip("]").replace("[", "_")
    return plain.lower() not in _NO_SECRET and (sounds_secret(plain) or bool(_NAME.search(plain)))


def looks_secret(value: str) -> bool:
    return bool(_LOOKS.search(value))


def looks_random(segment: str) -> bool:
    """Of a part of a path: a long word of letters and digits. (With dashes it is mostly an id.)"""
    return bool(_LOOKS.search(segment) or _RANDOM.fullmatch(segment))


def is_stand_in(value: str) -> bool:
    """`YOUR_API_KEY`, `<token>`, `xxx`: what documentation writes for the reader's own."""
    return bool(_STAND_IN.fullmatch(value.strip()))


class Secrets:
    """Those that have been found, by name. A value of None is one that the command does not say."""

    def __init__(self, host: str, given: dict[str, str]) -> None:
        self._prefix = secret_prefix(_word_of(host))
        self._given = given  # variables that were set in the command itself
        self.found: dict[str, str | None] = {}

    def take(self, value: str, word: str, taken: set[str] | frozenset[str] = frozenset()) -> str:
        """The placeholder for a value: a variable keeps its name, anything else is named after the host."""
        names = variables(value)
        if len(names) == 1 and len(pieces(value)) == 1:
            return self.variable(names[0])
        text = None if names or is_stand_in(value) else value
        base = name = f"{self._prefix}_{word}"
        number = 1
        while name in taken or self.found.get(name, text) != text:
            number += 1
            name = f"{base}_{number}"
        self.found[name] = text
        return f"${{{name}}}"

    def variable(self, name: str) -> str:
        self.found[name] = self._given.get(name)
        return f"${{{name}}}"


def word_for(name: str) -> str:
    """What comes behind the host in a secret's name: `x-api-key` -> `API_KEY`."""
    word = re.sub(r"[^A-Z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()).strip("_")
    word = word.removeprefix("X_")
    return {"KEY": "API_KEY", "APIKEY": "API_KEY", "APPID": "API_KEY"}.get(word, word[:40]) or "SECRET"


def _word_of(host: str) -> str:
    """`api.openai.com` -> `openai`, `localhost:9000` -> `localhost`."""
    labels = host.rpartition("@")[2].split(":")[0].split(".")
    if labels[-1].isdigit() or "[" in host:
        return "api"
    names = [label for label in labels[:-1] if label not in ("api", "www", "app", "co", "com", "rest", "gateway")]
    return (names or labels)[-1]
