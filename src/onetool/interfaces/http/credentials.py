"""Credentials: who a request comes from, by what it shows: a token, a session of the page, a JWT, or nothing.

    http.token        role admin; it owns what has no other owner, as the command line does
    a named token     of the config or of `onetool tokens add`: what it was given, until it expires or is revoked
    a session         made with one of these; it may what its token may, and ends with it
    a JWT             of the authorization server in http.jwt
    nothing           only where no credential is configured: role edit, from this machine

A server that is for calls only (`--tool-allow`, `http.admin: false`) caps every role at call.
"""

import hmac
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onetool.core.principal import Principal
from onetool.interfaces.asgi import HttpError
from onetool.interfaces.http.login_sessions import PREFIX, LoginSession, LoginSessions
from onetool.services.access_tokens import FoundToken, TokenBook

if TYPE_CHECKING:
    from onetool.config.model import HttpConfig
    from onetool.services.access_tokens import TokenStore

SHORTEST_TOKEN = 16  # characters
CHALLENGE = (b"www-authenticate", b'Bearer realm="onetool"')
OWN_TOKEN = "http.token"  # noqa: S105 - the name of the token in the config
NOBODY = Principal(role="edit")
ADMIN = Principal(name=OWN_TOKEN, role="admin")
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([^\s]+) *")
