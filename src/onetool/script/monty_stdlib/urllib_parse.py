# pyright: reportAttributeAccessIssue=false
"""urllib.parse: quotes, splits and joins URLs and query strings."""

import re

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
_CONTROL = "".join([chr(n) for n in range(33)])
_BOTH = {"", "ftp", "http", "https", "imap", "mms", "prospero", "rtsp", "rtspu", "sftp", "shttp"}
_WITH_PARAMS = _BOTH | {"hdl", "sip", "sips", "tel"}
_RELATIVE = _BOTH | {"file", "gopher", "nntp", "svn", "svn+ssh", "wais", "ws", "wss"}
_WITH_HOST = _RELATIVE | {"git", "git+ssh", "nfs", "rsync", "snews", "telnet"}


def quote_from_bytes(bs, safe="/"):
    if not isinstance(bs, bytes):
        raise TypeError("quote_from_bytes() expected bytes")
    if isinstance(safe, bytes):
        safe = safe.decode("ascii", "ignore")
    kept = _UNRESERVED | frozenset(safe)
    return "".join([chr(b) if b < 128 and chr(b) in kept else f"%{b:02X}" for b in bs])


def quote(string, safe="/", encoding=None, errors=None):
    if isinstance(string, str):
        string = string.encode(encoding or "utf-8", errors or "strict")
    return quote_from_bytes(string, safe)


def quote_plus(string, safe="", encoding=None, errors=None):
    safe = safe.decode("ascii", "ignore") if isinstance(safe, bytes) else safe
    return quote(string, safe + " ", encoding, errors).replace(" ", "+")


def unquote_to_bytes(string):
    parts = (string.encode() if isinstance(string, str) else string).split(b"%")
    for i in range(1, len(parts)):
        digits = parts[i][:2].decode("ascii", "replace")
        is_code = re.match("[0-9a-fA-F]{2}$", digits)
        parts[i] = bytes.fromhex(digits) + parts[i][2:] if is_code else b"%" + parts[i]
    return b"".join(parts)


def unquote(string, encoding="utf-8", errors="replace"):
    if isinstance(string, bytes):
        return unquote_to_bytes(string).decode(encoding or "utf-8", errors or "replace")
    parts = re.split("((?:%[0-9a-fA-F]{2})+)", string)
    for i in range(1, len(parts), 2):
        parts[i] = bytes.fromhex(parts[i].replace("%", "")).decode(encoding or "utf-8", errors or "replace")
    return "".join(parts)


def unquote_plus(string, encoding="utf-8", errors="replace"):
    return unquote(string.replace("+", " "), encoding, errors)


def urlencode(query, doseq=False, safe="", encoding=None, errors=None, quote_via=quote_plus):
    def quoted(value):
        if isinstance(value, bytes):
            return quote_via(value, safe)
        return quote_via(str(value), safe, encoding, errors)

    if isinstance(query, (str, bytes)):
        if query:
            raise TypeError("not a valid non-string sequence or mapping object")
        return ""
    parts = []
    for key, value in query.items() if isinstance(query, dict) else query:
        values = [value]
        if doseq and not isinstance(value, (str, bytes)):
            try:
                values = list(value) if len(value) else []
            except TypeError:
                values = [value]
        parts += [f"{quoted(key)}={quoted(one)}" for one in values]
    return "&".join(parts)


def parse_qsl(
    qs,
    keep_blank_values=False,
    strict_parsing=False,
    encoding="utf-8",
    errors="replace",
    max_num_fields=None,
    separator="&",
):
    if not separator or not isinstance(separator, str):
        raise ValueError("Separator must be of type string or bytes.")
    if not qs:
        return []
    if max_num_fields is not None and max_num_fields < 1 + qs.count(separator):
        raise ValueError("Max number of fields exceeded")
    result = []
    for field in qs.split(separator):
        if not field and not strict_parsing:
            continue
        name, equals, value = field.partition("=")
        if not equals and strict_parsing:
            raise ValueError(f"bad query field: {field!r}")
        if value or keep_blank_values:
            result.append((unquote_plus(name, encoding, errors), unquote_plus(value, encoding, errors)))
    return result


def parse_qs(qs, keep_blank_values=False, strict_parsing=False, **more):
    result = {}
    for name, value in parse_qsl(qs, keep_blank_values, strict_parsing, **more):
        result.setdefault(name, []).append(value)
    return result


class _Result:
    """The parts of a URL. Supports unpacking, indexing, and comparison with a tuple, but not `len`; a bad port
    is None.
    """

    def __init__(self, kind, fields, values):
        self._kind = kind
        self._fields = fields
        self._values = tuple(values)
        for field, value in zip(fields, self._values, strict=True):
            setattr(self, field, value)
        if "netloc" in fields:
            self._host()

    def _host(self):
        user, at, host = self.netloc.rpartition("@")
        name, colon, password = user.partition(":")
        self.username = name if at else None
        self.password = password if colon else None
        bracketed = host.rpartition("]")
        if bracketed[1]:
            host, port = bracketed[0].partition("[")[2], bracketed[2].partition(":")[2]
        else:
            host, _, port = host.partition(":")
        zone = host.partition("%")
        self.hostname = zone[0].lower() + zone[1] + zone[2] or None
        self.port = int(port) if port.isdigit() and port.isascii() and int(port) < 65536 else None

    def __iter__(self):
        return iter(self._values)

    def __getitem__(self, index):
        return self._values[index]

    def __eq__(self, other):
        return self._values == (other._values if isinstance(other, _Result) else other)

    def __hash__(self):
        return hash(self._values)

    def __repr__(self):
        return f"{self._kind}({', '.join([f'{k}={v!r}' for k, v in self._asdict().items()])})"

    def _asdict(self):
        return dict(zip(self._fields, self._values, strict=True))

    def _replace(self, **changes):
        wrong = [name for name in changes if name not in self._fields]
        if wrong:
            raise ValueError(f"Got unexpected field names: {wrong!r}")
        return _Result(self._kind, self._fields, {**self._asdict(), **changes}.values())

    def geturl(self):
        if self._kind == "DefragResult":
            return self.url + ("#" + self.fragment if self.fragment else "")
        return urlunparse(self) if self._kind == "ParseResult" else urlunsplit(self)


_FIELDS = ("scheme", "netloc", "path", "params", "query", "fragment")


def ParseResult(scheme, netloc, path, params, query, fragment):
    return _Result("ParseResult", _FIELDS, (scheme, netloc, path, params, query, fragment))


def SplitResult(scheme, netloc, path, query, fragment):
    return _Result("SplitResult", _FIELDS[:3] + _FIELDS[4:], (scheme, netloc, path, query, fragment))


def DefragResult(url, fragment):
    return _Result("DefragResult", ("url", "fragment"), (url, fragment))


def urlsplit(url, scheme="", allow_fragments=True):
    url = url.lstrip(_CONTROL)
    scheme = scheme.strip(_CONTROL)
    for unsafe in "\t\r\n":
        url = url.replace(unsafe, "")
        scheme = scheme.replace(unsafe, "")
    netloc = query = fragment = ""
    found = re.match("([A-Za-z][A-Za-z0-9+.-]*):", url)
    if found:
        scheme, url = found.group(1).lower(), url[found.end() :]
    if url.startswith("//"):
        netloc = re.split("[/?#]", url[2:])[0]
        url = url[2 + len(netloc) :]
        if ("[" in netloc) != ("]" in netloc):
            raise ValueError("Invalid IPv6 URL")
    if allow_fragments:
        url, _, fragment = url.partition("#")
    url, _, query = url.partition("?")
    return SplitResult(scheme, netloc, url, query, fragment)


def urlparse(url, scheme="", allow_fragments=True):
    scheme, netloc, path, query, fragment = urlsplit(url, scheme, allow_fragments)
    params = ""
    if scheme in _WITH_PARAMS:
        folder, slash, name = path.rpartition("/")
        name, _, params = name.partition(";")
        path = folder + slash + name
    return ParseResult(scheme, netloc, path, params, query, fragment)


def urlunsplit(components):
    scheme, netloc, url, query, fragment = components
    if netloc:
        url = "//" + netloc + (url if not url or url.startswith("/") else "/" + url)
    elif url.startswith("//") or (scheme and scheme in _WITH_HOST and (not url or url.startswith("/"))):
        url = "//" + url
    url = f"{scheme}:{url}" if scheme else url
    return url + ("?" + query if query else "") + ("#" + fragment if fragment else "")


def urlunparse(components):
    scheme, netloc, url, params, query, fragment = components
    return urlunsplit((scheme, netloc, f"{url};{params}" if params else url, query, fragment))


def urldefrag(url):
    if "#" not in url:
        return DefragResult(url, "")
    parts = urlparse(url)
    return DefragResult(urlunparse(parts._replace(fragment="")), parts.fragment)


def _resolved(base, path):
    """Resolve a path relative to a base path, removing dot segments (RFC 3986, 5.2)."""
    if path.startswith("/"):
        parts = path.split("/")
    else:
        parts = (base.split("/")[:-1] if base else [""]) + path.split("/")
        parts = parts[:1] + [part for part in parts[1:-1] if part] + parts[1:][-1:]
    result = []
    for part in parts:
        if part == ".." and result not in ([], [""]):
            result.pop()
        elif part not in (".", ".."):
            result.append(part)
    if parts[-1] in (".", ".."):
        result.append("")
    return "/".join(result) or "/"


def urljoin(base, url, allow_fragments=True):
    if not base or not url:
        return url or base
    old = urlparse(base, "", allow_fragments)
    new = urlparse(url, old.scheme, allow_fragments)
    if new.scheme != old.scheme or new.scheme not in _RELATIVE:
        return url
    if new.scheme in _WITH_HOST:
        if new.netloc:
            return urlunparse(new)
        new = new._replace(netloc=old.netloc)
    if not new.path and not new.params:
        return urlunparse(new._replace(path=old.path, params=old.params, query=new.query or old.query))
    return urlunparse(new._replace(path=_resolved(old.path, new.path)))
