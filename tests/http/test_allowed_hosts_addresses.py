"""How far an address reaches."""

import pytest

from onetool.http.allowed_hosts import GLOBAL, NOWHERE, PRIVATE, reach

pytestmark = pytest.mark.attack("URLs")


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "2606:2800:220:1:248:1893:25c8:1946",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
        "2001:0:808:808:0:0:f7f7:f7f7",  # Teredo: server and client are 8.8.8.8
    ],
)
def test_in_the_world(address: str) -> None:
    assert reach(address) == GLOBAL


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.5",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.7",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:a9fe:a9fe",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:808:808:0:0:80ff:fffe",  # Teredo: the client is 127.0.0.1
        "2001:0:a00:1:0:0:f7f7:f7f7",  # Teredo: the server is 10.0.0.1
        "2606:2800::5efe:7f00:1",  # ISATAP
        "2606:2800::200:5efe:a00:1",
        "2001:db8::1",
        "2001:2::1",
        "2001:20::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "2606:2800::1%eth0",
    ],
)
def test_here(address: str) -> None:
    assert reach(address) == PRIVATE


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::7f00:1",  # IPv4-compatible
        "::ffff:0:7f00:1",  # IPv4-translated
        "::ffff:0.0.0.0",
        "64:ff9b::",
        "100::1",
        "4000::1",
        "ff02::1",
        "",
        "localhost",
        "127.1",
        "0177.0.0.1",
        "2130706433",
    ],
)
def test_nowhere(address: str) -> None:
    assert reach(address) == NOWHERE
