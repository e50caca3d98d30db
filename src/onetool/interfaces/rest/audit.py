"""The handler of the audit log."""

import asyncio

import msgspec

from onetool.interfaces.json_data import encode
from onetool.interfaces.rest.database_problem import database_problem
from onetool.interfaces.rest.handlers import read_token, sign_token
from onetool.interfaces.rest.problem import RestError
from onetool.interfaces.rest.request import RestRequest, RestResponse
from onetool.services.audit import AuditRecord
from onetool.services.audit.record import AuditFilter, AuditPosition


class AuditList(msgspec.Struct, frozen=True, rename="camel"):
    """A page of the audit log."""

    enabled: bool
    records: tuple[AuditRecord, ...] = ()
    next_page_token: str | None = None
    skipped: int = 0
    lost: int = 0
    problem: str | None = None


async def list_audit(request: RestRequest) -> RestResponse:
    """The newest lines first. A page may have fewer than were asked for, and still not be the last one."""
    context, query = request.context, request.query
    wanted = AuditFilter(**{name: query[name] for name in ("since", "until", "who", "kind", "tool", "outcome")})
    log = context.app.audit.log

    def read() -> AuditList:
        if log is None:
            return AuditList(enabled=False)
        log.flush()
        key, route, token = context.bundles.key(), request.scope["path"], query["pageToken"]
        before = None if token is None else AuditPosition(*read_token(token, key, route, query))
        page = log.reader.page(wanted, query["pageSize"], before)
        following = None if page.before is None else sign_token([*page.before], key, route, query)
        return AuditList(
            enabled=True,
            records=tuple(page.records),
            next_page_token=following,
            skipped=page.skipped,
            lost=log.lost,
            problem=log.problem,
        )

    try:
        found = await asyncio.to_thread(read)
    except OSError as error:
        why, refused = f"The audit log can't be read: {error.strerror or error}.", database_problem(error)
        code, headers = ("unavailable", ()) if refused is None else (refused.code, refused.headers)
        raise RestError(503, code, why, headers=headers) from None
    return RestResponse(200, encode(msgspec.to_builtins(found)))
