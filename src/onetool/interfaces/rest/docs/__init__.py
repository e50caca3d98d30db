"""The API for people: one page, made of what it says of itself. Nothing from elsewhere, no script.

page      the route, and what is where on the page       look    how it looks
"""

from onetool.interfaces.rest.docs.page import docs

__all__ = ["docs"]
