"""What schemathesis can't know: refusals of data that fits its schema, because no schema says when it is right."""

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData, ServerError
from schemathesis.openapi.checks import RejectedPositiveData

# Only we can make these; a condition may fail; and a schema can't say which `Accept` is needed.
# What a tool takes is in its own schema.
OURS = ("bad_page_token", "bad_header", "stale", "not_acceptable", "needs_stream", "invalid_args")
# Schemas, code, expressions, templates and names of functions: each has a language of its own.
LANGUAGES = (
    *("/argSchema", "/outputSchema", "/pythonImpl/func", "/goImpl/func", "/scriptImpl/code", "/httpImpl"),
    "/preProcessors",
)
# Rules that no schema of ours says, as their refusals word them.
RULES = (
    *("normal form NFC", "null character", "visible characters", "is not a host", "Invalid URL", "invalid id"),
    *("duplicate name", "expected either", "is not a valid name of a variable", "digest: it is missing"),
    *("expected `text` or `servers`", "tool: ", "a single, non-empty line"),
)
NO_KEY = "no_key"  # of a provider that a question may name; 503 is what it is told


# What is imported, or named as a change of something, has a language of its own as a whole.
WHOLE = ("/imports/", "/copy", "/rename", "/approve", "/trust")


@schemathesis.serializer("application/zip")
def as_bytes(context, value):
    return {"data": value if isinstance(value, bytes) else str(value).encode()}


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Whether it is one of ours."""
    if isinstance(failure, ServerError) and response.status_code == 503:
        return response.json()["code"] != NO_KEY
    if not isinstance(failure, RejectedPositiveData | AcceptedNegativeData):
        return True
    if response.status_code not in (400, 406, 412):
        return True
    problem = response.json()
    if isinstance(failure, AcceptedNegativeData):
        return problem["code"] != "stale"  # it was not accepted: something else was wrong as well
    is_language = problem["code"] == "invalid" and problem.get("pointer", "").startswith(LANGUAGES)
    is_whole = problem["code"] == "invalid" and any(part in case.path for part in WHOLE)
    is_rule = any(rule in problem["detail"] for rule in RULES)
    return not (problem["code"] in OURS or is_language or is_whole or is_rule)
