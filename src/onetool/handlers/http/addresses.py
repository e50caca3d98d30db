"""Which addresses are somewhere out in the world, and which are in this machine, this house, or nowhere.

The lists are ours and not those of the standard library's `is_global`: what that says differs between versions of
Python. They follow IANA's special-purpose registries; where those say "it depends", the answer here is no.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

GLOBAL = "global"
PRIVATE = "private"  # this machine, this network: for those who allow it
NOWHERE = "nowhere"  # no single machine at all: for nobody

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
    """How far an address reaches: GLOBAL, PRIVATE or NOWHERE. What is no address reaches nowhere."""
    plain, zone, _ = text.partition("%")
    try:
        address = ip_address(plain)
    except ValueError:
        return NOWHERE
    found = _reach_4(address) if isinstance(address, IPv4Address) else _reach_6(address)
    return PRIVATE if zone and found == GLOBAL else found  # a zone is a network that this machine is in


def _reach_4(address: IPv4Address) -> str:
    if any(address in network for network in _nowhere_4):
        return NOWHERE
    return PRIVATE if any(address in network for network in _private_4) else GLOBAL


def _reach_6(address: IPv6Address) -> str:
    inner = embedded(address)
    if inner:
        worst = {_reach_4(one) for one in inner}
        return next(kind for kind in (NOWHERE, PRIVATE, GLOBAL) if kind in worst)
    if any(address in network for network in _private_6):
        return PRIVATE
    return GLOBAL if address in _UNICAST_6 else NOWHERE


def embedded(address: IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address stands for, or is carried by."""
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
