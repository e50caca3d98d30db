"""A page of a text that is in memory: what the same text must give when it is stored."""

from onetool.services.results.paging import MAX_BYTES, TextLines, page_of, placed_pieces


def query(text, offset=1, limit=100, search=None, fuzzy=False, max_bytes=MAX_BYTES, column=1):
    pieces = list(placed_pieces(text))

    def read(line, column):
        before = [number for number, piece in enumerate(pieces) if piece[:2] <= (line, column)]
        return iter(pieces[before[-1] :] if before else [])

    total = text.count("\n") + (text != "" and not text.endswith("\n"))
    return page_of(TextLines(total, read), offset, limit, search, fuzzy, max_bytes, column)
