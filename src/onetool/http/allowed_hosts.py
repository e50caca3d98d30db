"""`allowedHosts`: which hosts HTTP tools may call, and which IP addresses those may resolve to. No network access.

An entry is a host (`api.example.com`), everything under one (`*.example.com`, not example.com itself), or `*` for any;
with a port (`localhost:9000`) it is for that port, without one for the scheme's default. An address has to be a public
one, and a name one that public name servers could know, unless the entry says `allowPrivate: true`. The lists of
networks follow IANA's special-purpose registries and not `ipaddress.is_global`, which differs between versions of
Python; where a registry says "it depends", the answer here is no.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

from onetool.core.errors import Need
from onetool.core.model_providers import PROVIDERS
from onetool.http.errors import RequestRefusedError, UnmetNeedError
from onetool.http.url import DEFAULT_PORTS, Url, is_address, normal_host

MAX_REMEMBERED = 1_000  # origins
GLOBAL = "global"
PRIVATE = "private"  # this machine, this network: for those who allow it
NOWHERE = "nowhere"  # no single machine: never allowed

_PRIVATE_4 = (
    "10.0.0.0/8",
    "100.64.0.0/10",  # between a provider and its customers; a cloud's metadata, too
    "127.0.0.0/8",
    "168.63.129.16/32",  # looks public; in one cloud it is the host that a machine runs on
    "169.254.0.0/16",  # the metadata of most clouds
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",  # for documents, as are 198.51.100 and 203.0.113
    "192.88.99.0/24",  # relays of 6to4, which are gone
    "192.168.0.0/16",
    "198.18.0.0/15",  # for measuring
    "198.51.100.0/24",
    "203.0.113.0/24",
)
_NOWHERE_4 = ("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4")  # this host, many hosts, reserved (with broadcast)
_PRIVATE_6 = (
    "::1/128",
    "64:ff9b:1::/48",  # NAT64 within a network
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",  # site-local, of old
    "2001::/23",  # protocols; Teredo is one of them, and looked into before
    "2001:db8::/32",
    "3fff::/20",
    "5f00::/16",
)
_UNICAST_6 = IPv6Network("2000::/3")  # all that has been given out of the world's addresses

_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_ISATAP = (0x00005EFE, 0x02005EFE)  # the upper half of an interface's identifier, before an IPv4 address

_private_4 = tuple(map(IPv4Network, _PRIVATE_4))
_nowhere_4 = tuple(map(IPv4Network, _NOWHERE_4))
_private_6 = tuple(map(IPv6Network, _PRIVATE_6))


@lru_cache(maxsize=4096)
def reach(text: str) -> str:
    """Classify an address as GLOBAL, PRIVATE or NOWHERE; a text that is not an address is NOWHERE."""
    plain, zone, _ = text.partition("%")
    try:
        address = ip_address(plain)
    except ValueError:
        return NOWHERE
    if isinstance(address, IPv4Address):
        found = _reach_4(address)
    elif inner := {_reach_4(one) for one in embedded(address)}:
        found = next(kind for kind in (NOWHERE, PRIVATE, GLOBAL) if kind in inner)
    elif any(address in network for network in _private_6):
        found = PRIVATE
    else:
        found = GLOBAL if address in _UNICAST_6 else NOWHERE
    return PRIVATE if zone and found == GLOBAL else found  # a zone is a network that this machine is in


def _reach_4(address: IPv4Address) -> str:
    if any(address in network for network in _nowhere_4):
        return NOWHERE
    return PRIVATE if any(address in network for network in _private_4) else GLOBAL


def embedded(address: IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses embedded in an IPv6 address (mapped, NAT64, 6to4, Teredo, ISATAP)."""
    number = int(address)
    low = IPv4Address(number & 0xFFFFFFFF)
    if address in _MAPPED or address in _NAT64:
        return [low]
    if address in _6TO4:
        return [IPv4Address(number >> 80 & 0xFFFFFFFF)]
    if address in _TEREDO:  # its server, and the client with all bits turned
        return [IPv4Address(number >> 64 & 0xFFFFFFFF), IPv4Address(~int(low) & 0xFFFFFFFF)]
    if address in _UNICAST_6 and number >> 32 & 0xFFFFFFFF in _ISATAP:
        return [low]
    return []


# `allowedHosts`: which hosts HTTP tools may call, and which addresses those may lead to.

_SCHEME = re.compile(r"\Ahttps?://")
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
    host: str
    allow_private: bool = False


class _Pattern(NamedTuple):
    host: str  # "" is any
    is_wildcard: bool
    port: int | None


class AllowedHosts:
    """The parsed entries. An invalid one allows nothing, and is reported in `mistakes`."""

    def __init__(self, rules: Iterable[HostRule]) -> None:
        self.mistakes: list[str] = []
        self._exact: dict[tuple[str, int | None], HostRule] = {}
        self._under: list[tuple[_Pattern, HostRule]] = []
        self._checked: dict[tuple[str, str, int], HostRule] = {}  # by origin: what was allowed stays so
        for rule in rules:
            try:
                pattern = read_entry(rule.host)
            except ValueError as error:
                self.mistakes.append(str(error))
                continue
            if pattern.is_wildcard:
                self._under.append((pattern, rule))
            elif rule.allow_private or (pattern.host, pattern.port) not in self._exact:
                self._exact[pattern.host, pattern.port] = rule
        # The nearest one counts, and one with a port before one without.
        self._under.sort(key=lambda one: (-len(one[0].host), one[0].port is None))

    def check(self, url: Url) -> HostRule:
        """Return the entry that allows a URL, and an address in it. Raises RequestRefusedError if none does."""
        rule = self._checked.get(url[:3])
        if rule is not None:
            return rule
        rule = self._find(url)
        if rule is None:
            need = host_need(url)
            message = f"{url.authority} is not in allowedHosts, so no tool may call it"
            raise UnmetNeedError(message, [f"to allow it: {need.command}"], [need])
        if is_address(url.host):
            self.check_address(rule, url.host, url)
        elif not rule.allow_private and _is_near(url.host):
            raise _needs_private(url, f"{url.host} is a name of this machine or its network")
        if len(self._checked) < MAX_REMEMBERED:
            self._checked[url[:3]] = rule
        return rule

    def check_address(self, rule: HostRule, address: str, url: Url) -> None:
        """Raise RequestRefusedError for an address that the entry does not allow. Every one of a name must pass."""
        found = reach(address)
        if found == GLOBAL or (found == PRIVATE and rule.allow_private):
            return
        leads = f"{url.host} is" if address == url.host else f"{url.host} leads to {address},"
        if found == PRIVATE:
            raise _needs_private(url, f"{leads} an address that is not public")
        raise RequestRefusedError(f"{leads} an address that can't be called: it is not a single machine's")

    def has(self, url: Url) -> bool:
        return self._find(url) is not None

    def _find(self, url: Url) -> HostRule | None:
        host, port = url.host, url.port
        rule = self._exact.get((host, port))
        is_default = port == DEFAULT_PORTS[url.scheme]
        if rule is None and is_default:
            rule = self._exact.get((host, None))
        if rule is not None:
            return rule
        for pattern, rule in self._under:
            fits_port = is_default if pattern.port is None else port == pattern.port
            if fits_port and (not pattern.host or (host.endswith(f".{pattern.host}") and not is_address(host))):
                return rule
        return None


def is_bound_to(url: Url, bindings: Iterable[str]) -> bool:
    """Return whether a secret with these bindings may go to a URL: its scheme, host and port.

    A binding is an entry of `allowedHosts`. It means https, unless it begins with http://.
    """
    is_http = url.scheme == "http"
    hosts = (_SCHEME.sub("", one) for one in bindings if one.startswith("http://") == is_http)
    return AllowedHosts(map(HostRule, hosts)).has(url)


def read_binding(text: str) -> _Pattern:
    """Parse the host and port of a binding. Raises ValueError."""
    bare = _SCHEME.sub("", text)
    if not bare or "/" in bare:
        raise ValueError(f"{text!r} is not a host: write api.example.com or http://localhost:9000, without a path")
    return read_entry(bare)


def binding_for(url: Url) -> str:
    """Return the binding that lets a secret go to this URL."""
    return url.authority if url.scheme == "https" else f"{url.scheme}://{url.authority}"


def binding_command(name: str, bindings: Iterable[str] = ()) -> str:
    """Return the command that stores a secret with these bindings."""
    options = [f"--host {one}" for one in bindings]
    if name.lower() in PROVIDERS or not (name.isupper() or options):
        options.append("--secret")
    return " ".join([f"onetool auth set {name}", *options])


def read_entry(text: str) -> _Pattern:
    bare = f"[{text}]" if text.count(":") > 1 and "[" not in text else text  # an IPv6 address without its brackets
    found = _ENTRY.fullmatch(bare)
    if found is None or (found[2] is not None and not 1 <= int(found[2]) <= 65535):
        raise ValueError(
            f"allowedHosts: {text!r} is not a host; write a name, *.name or an address, with a port or without,"
            " and neither https:// nor a path"
        )
    port = None if found[2] is None else int(found[2])
    if found[1] == "*":
        return _Pattern("", True, port)
    try:
        host = normal_host(found[1].removeprefix("*."))
    except RequestRefusedError as refusal:
        raise ValueError(f"allowedHosts: {text!r} is not a host: {refusal}") from None
    if (is_wildcard := found[1].startswith("*.")) and is_address(host):
        raise ValueError(f"allowedHosts: {text!r} is nothing: there is nothing under an address")
    return _Pattern(host, is_wildcard, port)


def _is_near(name: str) -> bool:
    return "." not in name or name.endswith(_NEAR)


def is_private(host: str) -> bool:
    """Return whether a host is of this machine or its network, as far as that is known without a lookup."""
    return reach(host) == PRIVATE if is_address(host) else _is_near(host)


def host_need(url: Url, private: bool = False) -> Need:
    """Return that this URL's host has to be allowed. `private`: it leads to an address of this machine or network."""
    private = private or is_private(url.host)
    command = f"onetool hosts allow {'--private ' if private else ''}{url.authority}"
    return Need(command=command, host=url.authority, private=private)


def secret_need(name: str, bindings: Iterable[str] = (), stored: bool = False) -> Need:
    """Return that a secret has to be set, or if it is `stored`, bound to these hosts."""
    bindings = tuple(bindings)
    return Need(command=binding_command(name, bindings), secret=name, hosts=bindings, stored=stored)


def host_entry(host: str, private: bool) -> str:
    """Write an entry of allowedHosts, in YAML that is JSON, too, as far as texts go."""
    return f'{{host: "{host}", allowPrivate: true}}' if private else f'"{host}"'


def _needs_private(url: Url, what: str) -> RequestRefusedError:
    need = host_need(url, private=True)
    message = f"{what}, and its entry in allowedHosts does not allow that"
    return UnmetNeedError(message, [f"if that is meant: {need.command}"], [need])
