"""What the API says of itself: OpenAPI 3.1, made of the shapes that the code reads and the places that it serves.

schemas     the shapes, of msgspec's own making, with what only words or patterns can say
operations  what each method at each address takes and gives
ask_shapes, ask_operation    the same two for `POST /ask`
document    all of it together; examples: a bundle, a tool, a call
"""

from onetool.interfaces.rest.openapi.document import openapi, openapi_document

__all__ = ["openapi", "openapi_document"]
