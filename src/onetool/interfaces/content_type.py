"""What a request says that its body is. Only JSON is taken: a web page can't send that to another origin unasked.

Text, forms and bodies that say nothing of themselves it can send to any address, with whatever JSON in them.
"""

from onetool.interfaces.asgi import JSON, Refused

_USUAL = (JSON, b"application/json; charset=utf-8")  # answered without a closer look
LONGEST = 100  # characters of it that an answer repeats


def check_content_type(content_type: bytes | None) -> None:
    if content_type in _USUAL or (content_type is not None and _is_json(content_type)):
        return
    came = "there is none" if content_type is None else f"not {content_type[:LONGEST].decode('latin-1')!r}"
    message = f"A body must be JSON in UTF-8, and say so: send `Content-Type: application/json`; {came}."
    raise Refused(415, "unsupported_media_type", message)


def _is_json(content_type: bytes) -> bool:
    name, *parameters = (part.strip().lower() for part in content_type.split(b";"))
    charsets = [one[8:].strip(b'"') for one in parameters if one.startswith(b"charset=")]
    return name == JSON and all(one in (b"utf-8", b"utf8") for one in charsets)
