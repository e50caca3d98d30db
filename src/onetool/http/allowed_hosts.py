"""`allowedHosts`: which hosts HTTP tools may call, and which IP addresses those may resolve to. No network access.

An entry is a host (`api.example.com`), all subdomains of a host (`*.example.com`, without example.com itself), or `*`
for any host. An entry with a port (`localhost:9000`) applies to that port only, an entry without a port to the default
port of the scheme. Unless the entry says `allowPrivate: true`, the address must be public and the name must be one that
public name servers could know. The lists of networks follow IANA's special-purpose registries and not
`ipaddress.is_global`, which differs between Python versions; where a registry says "it depends", the network is
refused.
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
PRIVATE = "private"  # this machine, this network: needs allowPrivate
NOWHERE = "nowhere"  # not the address of a single machine: never allowed

_PRIVATE_4 = (
    "10.0.0.0/8",
    "100.64.0.0/10",  # between a provider and its customers; also the metadata service of some clouds
    "127.0.0.0/8",
    "168.63.129.16/32",  # looks public, but is the virtualization host in one cloud
    "169.254.0.0/16",  # the metadata service of most clouds
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",  # for documentation, like 198.51.100 and 203.0.113
    "192.88.99.0/24",  # 6to4 relays (deprecated)
    "192.168.0.0/16",
    "198.18.0.0/15",  # for benchmarks
    "198.51.100.0/24",
    "203.0.113.0/24",
)
_NOWHERE_4 = ("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4")  # this host, multicast, reserved (with broadcast)
_PRIVATE_6 = (
    "::1/128",
    "64:ff9b:1::/48",  # NAT64 within a network
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",  # site-local (deprecated)
    "2001::/23",  # protocol assignments; Teredo is one of them and is checked first
    "2001:db8::/32",
    "3fff::/20",
    "5f00::/16",
)
_UNICAST_6 = IPv6Network("2000::/3")  # all global unicast addresses that have been allocated

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
    """Classify an address as GLOBAL, PRIVATE or NOWHERE; a string that is not an address is NOWHERE."""
    plain, zone, _ = text.partition("%")
    try:
        address = ip_address(plain)
    except ValueError:
        return NOWHERE
    if isinstance(address, IPv4Address):
        kind = _reach_4(address)
    elif inner := set(map(_reach_4, embedded(address))):
        kind = next(kind for kind in (NOWHERE, PRIVATE, GLOBAL) if kind in inner)
    elif any(address in network for network in _private_6):
        kind = PRIVATE
    else:
        kind = GLOBAL if address in _UNICAST_6 else NOWHERE
    return PRIVATE if zone and kind == GLOBAL else kind  # an address with a zone is on a network of this machine


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
    if address in _TEREDO:  # the server, and the client with all bits inverted
        return [IPv4Address(number >> 64 & 0xFFFFFFFF), IPv4Address(~int(low) & 0xFFFFFFFF)]
    if address in _UNICAST_6 and number >> 32 & 0xFFFFFFFF in _ISATAP:
        return [low]
    return []


# The entries of `allowedHosts`

_SCHEME = re.compile(r"\Ahttps?://")
_ENTRY = re.compile(r"(\*|\*\.[^:\[\]*]+|\[[^\[\]]+\]|[^:\[\]*]+)(?::([0-9]{1,5}))?")
# Reserved names that public DNS never contains: their addresses are local.
_PRIVATE_NAMES = (
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
    host: str  # "" means any host
    is_wildcard: bool
    port: int | None


class AllowedHosts:
    """The parsed entries. An invalid entry allows nothing and is listed in `mistakes`."""

    def __init__(self, rules: Iterable[HostRule]) -> None:
        self.mistakes: list[str] = []
        self._exact: dict[tuple[str, int | None], HostRule] = {}
        self._wildcards: list[tuple[_Pattern, HostRule]] = []
        self._checked: dict[tuple[str, str, int], HostRule] = {}  # by origin; an allowed origin stays allowed
        for rule in rules:
            try:
                pattern = read_entry(rule.host)
            except ValueError as error:
                self.mistakes.append(f"allowedHosts: {error}")
                continue
            if pattern.is_wildcard:
                self._wildcards.append((pattern, rule))
            elif rule.allow_private or (pattern.host, pattern.port) not in self._exact:
                self._exact[pattern.host, pattern.port] = rule
        # The most specific entry wins, and an entry with a port wins over one without.
        self._wildcards.sort(key=lambda entry: (-len(entry[0].host), entry[0].port is None))

    def check(self, url: Url) -> HostRule:
        """Return the entry that allows a URL. Raise RequestRefusedError if no entry does."""
        rule = self._checked.get(url[:3])
        if rule is not None:
            return rule
        rule = self.find(url)
        if rule is None:
            need = host_need(url)
            message = f"{url.authority} is not in allowedHosts, so no tool may call it"
            raise UnmetNeedError(message, [f"to allow it: {need.command}"], [need])
        if is_address(url.host):
            self.check_address(rule, url.host, url)
        elif not rule.allow_private and _is_private_name(url.host):
            raise _needs_private(url, f"{url.host} is a name of this machine or its network")
        if len(self._checked) < MAX_REMEMBERED:
            self._checked[url[:3]] = rule
        return rule

    def check_address(self, rule: HostRule, address: str, url: Url) -> None:
        """Raise RequestRefusedError if the entry does not allow this address. Every address of a name must pass."""
        kind = reach(address)
        if kind == GLOBAL or (kind == PRIVATE and rule.allow_private):
            return
        what = f"{url.host} is" if address == url.host else f"{url.host} resolves to {address},"
        if kind == PRIVATE:
            raise _needs_private(url, f"{what} an address that is not public")
        raise RequestRefusedError(f"{what} an address that can't be called: it does not belong to a single machine")

    def find(self, url: Url) -> HostRule | None:
        host, port = url.host, url.port
        rule = self._exact.get((host, port))
        is_default = port == DEFAULT_PORTS[url.scheme]
        if rule is None and is_default:
            rule = self._exact.get((host, None))
        if rule is not None:
            return rule
        for pattern, rule in self._wildcards:
            fits_port = is_default if pattern.port is None else port == pattern.port
            if fits_port and (not pattern.host or (host.endswith(f".{pattern.host}") and not is_address(host))):
                return rule
        return None


def is_bound_to(url: Url, bindings: Iterable[str]) -> bool:
    """Return whether a secret with these bindings may go to a URL: its scheme, host and port.

    A binding is an entry of `allowedHosts`. Its scheme is https unless it begins with http://.
    """
    is_http = url.scheme == "http"
    hosts = (_SCHEME.sub("", binding) for binding in bindings if binding.startswith("http://") == is_http)
    return AllowedHosts(map(HostRule, hosts)).find(url) is not None


def read_binding(text: str) -> _Pattern:
    """Parse the host and port of a binding. Raise ValueError if it is invalid."""
    bare = _SCHEME.sub("", text)
    if not bare or "/" in bare:
        raise ValueError(f"{text!r} is not a host: write api.example.com or http://localhost:9000, without a path")
    return read_entry(bare)


def binding_for(url: Url) -> str:
    """Return the binding that lets a secret go to this URL."""
    return url.authority if url.scheme == "https" else f"{url.scheme}://{url.authority}"


def binding_command(name: str, bindings: Iterable[str] = ()) -> str:
    """Return the command that stores a secret with these bindings."""
    options = [f"--host {binding}" for binding in bindings]
    if name.lower() in PROVIDERS or not (name.isupper() or options):
        options.append("--secret")
    return " ".join([f"onetool auth set {name}", *options])


def read_entry(text: str) -> _Pattern:
    bare = f"[{text}]" if text.count(":") > 1 and "[" not in text else text  # an IPv6 address without brackets
    found = _ENTRY.fullmatch(bare)
    if found is None or "/" in text or (found[2] is not None and not 1 <= int(found[2]) <= 65535):
        raise ValueError(
            f"{text!r} is not a host; write a name, *.name or an address, with a port or without,"
            " and neither https:// nor a path"
        )
    port = None if found[2] is None else int(found[2])
    if found[1] == "*":
        return _Pattern("", True, port)
    try:
        host = normal_host(found[1].removeprefix("*."))
    except RequestRefusedError as refusal:
        raise ValueError(f"{text!r} is not a host: {refusal}") from None
    if (is_wildcard := found[1].startswith("*.")) and is_address(host):
        raise ValueError(f"{text!r} is invalid: an address has no subdomains")
    return _Pattern(host, is_wildcard, port)


def _is_private_name(name: str) -> bool:
    return "." not in name or name.endswith(_PRIVATE_NAMES)


def is_private(host: str) -> bool:
    """Return whether a host is on this machine or its network, judging by its name alone (no lookup)."""
    return reach(host) == PRIVATE if is_address(host) else _is_private_name(host)


def host_need(url: Url, private: bool = False) -> Need:
    """Return the requirement to allow this URL's host. `private` means that the host resolves to a private address."""
    private = private or is_private(url.host)
    command = f"onetool hosts allow {'--private ' if private else ''}{url.authority}"
    return Need(command=command, host=url.authority, private=private)


def secret_need(name: str, bindings: Iterable[str] = (), stored: bool = False) -> Need:
    """Return the requirement to set a secret or, if it is `stored`, to bind it to these hosts."""
    bindings = tuple(bindings)
    return Need(command=binding_command(name, bindings), secret=name, hosts=bindings, stored=stored)


def host_entry(host: str, private: bool) -> str:
    """Write an entry of allowedHosts as YAML (strings are also valid JSON)."""
    return f'{{host: "{host}", allowPrivate: true}}' if private else f'"{host}"'


def _needs_private(url: Url, what: str) -> RequestRefusedError:
    need = host_need(url, private=True)
    message = f"{what}, and its entry in allowedHosts does not allow that"
    return UnmetNeedError(message, [f"if this is intended: {need.command}"], [need])
