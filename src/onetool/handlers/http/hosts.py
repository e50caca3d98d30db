"""`allowedHosts`: which hosts HTTP tools may call, and which addresses those may lead to. Asks nobody, dials nothing.

An entry is a host (`api.example.com`), everything under one (`*.example.com`, not example.com itself), or `*` for any;
with a port (`localhost:9000`) it is for that port, without one for the scheme's own. An address has to be a public one,
and a name one that public name servers could know, unless the entry says `allowPrivate: true`.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from onetool.handlers.http.addresses import GLOBAL, PRIVATE, reach
from onetool.handlers.http.refusal import Refusal
from onetool.handlers.http.url import DEFAULT_PORTS, Url, is_address, normal_host

_ENTRY = re.compile(r"(\*|\*\.[^:\[\]*]+|\[[^\[\]]+\]|[^:\[\]*]+)(?::([0-9]{1,5}))?")
# Names that the public name system promises not to have: whatever they lead to is near.
_NEAR = (
    ".corp",
    ".home",
    ".home.arpa",
    ".internal",
    ".intranet",
    ".lan",
    ".local",
    ".localdomain",
    ".localhost",
    ".private",
)


class HostRule(NamedTuple):
    """One entry, as it was written."""

    host: str
    allow_private: bool = False


class _Pattern(NamedTuple):
    host: str  # "" is any
    is_wildcard: bool
    port: int | None


class AllowedHosts:
    """The entries, ready to be asked. One that can't be read allows nothing, and is told in `mistakes`."""

    def __init__(self, rules: Iterable[HostRule]) -> None:
        self.mistakes: list[str] = []
        self._exact: dict[tuple[str, int | None], HostRule] = {}
        self._under: list[tuple[_Pattern, HostRule]] = []
        for rule in rules:
            try:
                self._add(read_entry(rule.host), rule)
            except ValueError as error:
                self.mistakes.append(str(error))
        # The nearest one counts, and one with a port before one without.
        self._under.sort(key=lambda one: (-len(one[0].host), one[0].port is None))

    def _add(self, pattern: _Pattern, rule: HostRule) -> None:
        if pattern.is_wildcard:
            self._under.append((pattern, rule))
            return
        known = self._exact.get(key := (pattern.host, pattern.port))
        if known is None or rule.allow_private:
            self._exact[key] = rule

    def check(self, url: Url) -> HostRule:
        """The entry that lets a URL pass; Refusal where none does. An address in the URL is checked as well."""
        rule = self._find(url)
        if rule is None:
            raise Refusal(
                f"{url.authority} is not in allowedHosts, so no tool may call it",
                [f"to allow it, add to allowedHosts in the config: {_entry(url, is_private(url.host))}"],
            )
        if is_address(url.host):
            self.check_address(rule, url.host, url)
        elif not rule.allow_private and _is_near(url.host):
            raise _needs_private(url, f"{url.host} is a name of this machine or its network")
        return rule

    def check_address(self, rule: HostRule, address: str, url: Url) -> None:
        """Refusal for an address that the entry does not allow. All that a name leads to have to pass, not only one."""
        found = reach(address)
        if found == GLOBAL or (found == PRIVATE and rule.allow_private):
            return
        leads = f"{url.host} is" if address == url.host else f"{url.host} leads to {address},"
        if found == PRIVATE:
            raise _needs_private(url, f"{leads} an address that is not public")
        raise Refusal(f"{leads} an address that can't be called: it is no single machine's")

    def has(self, url: Url) -> bool:
        return self._find(url) is not None

    def _find(self, url: Url) -> HostRule | None:
        host, port = url.host, url.port
        rule = self._exact.get((host, port))
        is_default = port == DEFAULT_PORTS[url.scheme]
        if rule is None and is_default:
            rule = self._exact.get((host, None))
        return rule or next((rule for one, rule in self._under if _covers(one, host, port, is_default)), None)


def is_one_of(url: Url, hosts: Iterable[str]) -> bool:
    """Whether a URL leads to one of these entries. Which addresses it may lead to is not asked here."""
    return AllowedHosts(HostRule(host) for host in hosts).has(url)


def read_entry(text: str) -> _Pattern:
    """An entry of `allowedHosts`; ValueError when it is none."""
    bare = f"[{text}]" if text.count(":") > 1 and "[" not in text else text  # an IPv6 address without its brackets
    found = _ENTRY.fullmatch(bare)
    if found is None or (found[2] is not None and not 1 <= int(found[2]) <= 65535):
        raise ValueError(
            f"allowedHosts: {text!r} is no host; write a name, *.name or an address, with a port or without,"
            " and neither https:// nor a path"
        )
    port = None if found[2] is None else int(found[2])
    if found[1] == "*":
        return _Pattern("", True, port)
    try:
        host = normal_host(found[1].removeprefix("*."))
    except Refusal as refusal:
        raise ValueError(f"allowedHosts: {text!r} is no host: {refusal}") from None
    if (is_wildcard := found[1].startswith("*.")) and is_address(host):
        raise ValueError(f"allowedHosts: {text!r} is nothing: there is nothing under an address")
    return _Pattern(host, is_wildcard, port)


def _covers(pattern: _Pattern, host: str, port: int, is_default: bool) -> bool:
    if not (is_default if pattern.port is None else port == pattern.port):
        return False
    return not pattern.host or (host.endswith(f".{pattern.host}") and not is_address(host))


def _is_near(name: str) -> bool:
    return "." not in name or name.endswith(_NEAR)


def is_private(host: str) -> bool:
    """Whether a host is of this machine or its network, as far as it can be told without asking anybody."""
    return reach(host) == PRIVATE if is_address(host) else _is_near(host)


def _entry(url: Url, private: bool = False) -> str:
    return f'{{host: "{url.authority}", allowPrivate: true}}' if private else f'"{url.authority}"'


def _needs_private(url: Url, what: str) -> Refusal:
    return Refusal(
        f"{what}, and its entry in allowedHosts does not allow that",
        [f"if that is meant, write in allowedHosts in the config: {_entry(url, private=True)}"],
    )
