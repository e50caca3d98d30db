"""uuid: random (uuid4) and name-based (uuid3, uuid5) UUIDs, and parsing them."""

import hashlib
import random

_number = int  # the constructor's arguments shadow `int` and `bytes`


def _unhex(digits):
    return bytes.fromhex(digits)


class UUID:
    def __init__(self, hex=None, bytes=None, *, int=None, version=None):
        if [hex, bytes, int].count(None) != 2:
            raise TypeError("one of the hex, bytes, bytes_le, fields, or int arguments must be given")
        value = int or 0
        if hex is not None:
            digits = hex.replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "")
            if len(digits) != 32:
                raise ValueError("badly formed hexadecimal UUID string")
            value = _number(digits, 16)
        elif bytes is not None:
            if len(bytes) != 16:
                raise ValueError("bytes is not a 16-char string")
            value = _number(bytes.hex(), 16)
        if not 0 <= value < 1 << 128:
            raise ValueError("int is out of range (need a 128-bit value)")
        if version is not None:
            if not 1 <= version <= 8:
                raise ValueError("illegal version number")
            value = value & ~(0xF << 76) & ~(0x3 << 62) | version << 76 | 0x2 << 62
        self.int = value
        self.hex = f"{value:032x}"
        self.bytes = _unhex(self.hex)
        self.urn = "urn:uuid:" + str(self)
        self.version = value >> 76 & 0xF if value >> 62 & 0x3 == 0x2 else None

    def __str__(self):
        h = self.hex
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"

    def __repr__(self):
        return f"UUID('{self}')"

    def __eq__(self, other):
        return isinstance(other, UUID) and self.int == other.int

    def __hash__(self):
        return hash(self.int)

    def __int__(self):
        return self.int


def _named(digest, namespace, name, version):
    name = name.encode() if isinstance(name, str) else name
    return UUID(bytes=digest(namespace.bytes + name).digest()[:16], version=version)


def uuid4():
    return UUID(int=random.getrandbits(128), version=4)


def uuid3(namespace, name):
    return _named(hashlib.md5, namespace, name, 3)


def uuid5(namespace, name):
    return _named(hashlib.sha1, namespace, name, 5)


NAMESPACE_DNS = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
NAMESPACE_URL = UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
NAMESPACE_OID = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
NAMESPACE_X500 = UUID("6ba7b814-9dad-11d1-80b4-00c04fd430c8")
