"""A tool's JSON as it is kept in the index and in memory: packed, since of 100,000 tools few are ever looked at.

Most of a tool's JSON is keys that all tools have. They stand in `COMMON`, which packed JSON refers to: a third is left.
Whoever changes `COMMON` changes the layout of the index, too.
"""

import zlib

import msgspec

from onetool.sources.bundles.model import Tool

COMMON = (
    b'"number","boolean","array","items":{"enum":["additionalProperties":false,"headers":{"Authorization":"Bearer '
    b'${secret.","query":{"body":{"method":"POST","PUT","DELETE","PATCH","title":"","format":"minimum":"maximum":'
    b'"pythonImpl":{"func":"},"scriptImpl":{"code":"{"type":"python","displayName":"'
    b'{"type":"http","displayName":"","description":"","tags":["],"isEnabled":true,"parallel":false,'
    b'"argSchema":{"type":"object","properties":{"id":{"type":"string","description":"},"limit":{"type":"integer",'
    b'"default":"required":["]},"outputSchema":{},"httpImpl":{"request":{"urlTemplate":"https://api.}},'
    b'"pythonImpl":null,"goImpl":null,"scriptImpl":null,"limits":{},"preProcessors":[],"examples":[],"id":"01'
    b'","bundleID":"01","slug":"","version":"1.0","isBuiltIn":false,"createdAt":"2026-","modifiedAt":"2026-'
    b'.000Z","schemaVersion":"1","source":null}'
)
_BARE = -15  # no header and no sum of its own: SQLite and memory are not less reliable than that

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Tool).decode


def pack_tool(tool: Tool) -> bytes:
    packing = zlib.compressobj(wbits=_BARE, zdict=COMMON)
    return packing.compress(_encode(tool)) + packing.flush()


def unpack_tool(body: bytes) -> Tool:
    """Raises DecodeError."""
    try:
        return _decode(zlib.decompressobj(wbits=_BARE, zdict=COMMON).decompress(body))
    except zlib.error as error:
        raise msgspec.DecodeError(f"it can't be unpacked: {error}") from error
