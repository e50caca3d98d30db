"""ToolMeanings: how near the meaning of each tool is to that of a query.

A table gives each word, or piece of a word, a vector and a weight. A text is the weighted sum of its words, made one
long; two texts are as near as their vectors' product. That is all: no network, no model. The table was trained for
texts of tools, see NOTICE. It knows English words; texts in other scripts have no meaning here, and are found by their
words.

numpy is imported with the table, when a search first needs it.
"""

import logging
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from onetool.core.os_files import read_marked, replace_file
from onetool.core.registry import LazyTool, as_spec
from onetool.core.spec import ToolSpec
from onetool.services.search.words import EVERYDAY, said_of_parameters

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    Halves = np.ndarray[tuple[int, ...], np.dtype[np.float16]]
    Doubles = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

log = logging.getLogger("onetool")

TABLE = Path(__file__).with_name("table")
DIMENSIONS = 256

QUERY_TOKENS, TOOL_TOKENS = 64, 128  # as the table was trained; what comes later in a text says little
TEXT_OF_TOKENS = 16  # characters of a text that are looked at for each of its tokens
MOST_PIECES = 4  # of one word in a query: what falls into more is a mistake, a key or another language
LONGEST_WORD = 40  # letters; in a tool, a name of many words may be written as one
KNOWN_WORDS = 50_000  # whose pieces are remembered

# A tool is the sum of its texts. Descriptions begin with what matters, and go on with rules for the caller.
FIRST_SENTENCE, ALL_TEXT, NAME, EXAMPLES = 0.5, 0.5, 0.15, 0.5

FEW = 32  # tools whose vectors are made while a query waits: some milliseconds
LEAST_CACHED = 500  # tools whose vectors are looked for in the cache: fewer are made as quickly
SAVED_SHARE = 20  # one new vector of so many: then the cache is written anew
MOST_CACHED = 2  # vectors in the file for each that is in use: which are of tools that are gone is not known
BLOCK = 32  # vectors that are multiplied together
PROBES = 32  # products that show what a matrix library does; one or two would not
MOST_TOOLS = 120_000  # slots: 120 MB; those that come later are found by their words

_ACCENTS = re.compile("[\u0300-\u036f]")
_WORD = re.compile(r"[a-z0-9]{2,}")  # a letter or a digit alone means nothing
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")


class Tokens(NamedTuple):
    rows: list[int]  # of the table
    has_word: bool  # not only pieces, and not only everyday words


class WordTable:
    """The table: text -> vector. Raises OSError or ImportError where it can't be loaded."""

    def __init__(self, folder: Path = TABLE) -> None:
        import numpy as np

        words = (folder / "vocabulary.txt").read_text("ascii").split()
        self._rows = {word: row for row, word in enumerate(words)}
        vectors = np.memmap(folder / "vectors.i8", np.int8, mode="r", shape=(len(words), DIMENSIONS))
        self._vectors = vectors.view(np.ndarray)  # whose rows are taken in half the time
        self._weights = np.fromfile(folder / "weights.f32", "<f4", count=len(words))
        self._pieces = lru_cache(KNOWN_WORDS)(lambda word: tuple(self._split(word)))
        self._np = np
        some = [self.vector([row, row + 1]) for row in range(PROBES)]
        probes = (np.matmul(np.tile(one, (1, BLOCK, 1)), other) for one, other in pairwise(some))
        self._has_equal_blocks = all(np.unique(probe).size == 1 for probe in probes)

    def vector(self, rows: list[int]) -> "Floats":
        """Of length one; all zeros without tokens."""
        np = self._np
        if not rows:
            return np.zeros(DIMENSIONS, np.float32)
        summed = self._weights[rows] @ self._vectors[rows].astype(np.float32)
        return summed / (np.sqrt(summed.dot(summed)) or 1.0)

    def products(self, vectors: "Floats", rows: list[int]) -> "Floats":
        """How near each of the vectors, which are whole blocks, is to a text.

        A matrix library gives equal rows different last digits where there is an end nearby, and its threads wait for
        each other, which takes a hundred times as long on a busy machine. It does neither with a small block.
        """
        vector = self.vector(rows)
        if not self._has_equal_blocks:
            return self._np.einsum("ij,j->i", vectors, vector)  # takes up to twice the time
        return self._np.matmul(vectors.reshape(-1, BLOCK, DIMENSIONS), vector).reshape(-1)

    def tokens(self, text: str, most: int, pieces_each: int = LONGEST_WORD) -> Tokens:
        """As many as that, of words of at most so many pieces."""
        rows, has_word = list[int](), False
        for word in _WORD.findall(_plain(text[: most * TEXT_OF_TOKENS])):
            pieces = self._pieces(word)
            if len(pieces) > pieces_each:
                continue
            rows += pieces
            has_word = has_word or (len(pieces) == 1 and word not in EVERYDAY)
            if len(rows) >= most:
                break
        return Tokens(rows[:most], has_word)

    def _split(self, word: str) -> Iterator[int]:
        """The longest known pieces from the left (WordPiece); nothing if a part is unknown."""
        found, start = list[int](), 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1) if len(word) <= LONGEST_WORD else ()
            end = next((end for end in ends if mark + word[start:end] in self._rows), None)
            if end is None:
                return
            found.append(self._rows[mark + word[start:end]])
            start = end
        yield from found


def _plain(text: str) -> str:
    """Small letters, without accents."""
    return text.lower() if text.isascii() else _ACCENTS.sub("", unicodedata.normalize("NFKD", text.lower()))


_loading = Lock()


def load_table() -> WordTable | None:
    """Return the table of this process, or None, logged once, where it or numpy can't be loaded."""
    with _loading:
        return _load_once()


@cache
def _load_once() -> WordTable | None:
    try:
        return WordTable()
    except (ImportError, OSError, RuntimeError, ValueError) as error:  # numpy refuses old processors by RuntimeError
        log.warning("search goes by words alone, since its table can't be loaded: %s: %s", type(error).__name__, error)
        return None


# Tools


def tool_texts(spec: ToolSpec) -> tuple[str, str, str, str]:
    """The texts that a tool is the sum of."""
    name = _CAMEL.sub(" ", spec.name)
    description = spec.description.strip()
    first = _SENTENCE.split(description[:1000], maxsplit=1)[0]
    said = (name, *spec.tags, description, *said_of_parameters(spec.input_schema))
    return f"{name} {first}", " ".join(said), name, " ".join(spec.examples)


def tool_vector(table: WordTable, spec: ToolSpec) -> "Halves":
    vector = table.vector([])
    for text, weight in zip(tool_texts(spec), (FIRST_SENTENCE, ALL_TEXT, NAME, EXAMPLES), strict=True):
        vector += weight * table.vector(table.tokens(text, TOOL_TOKENS).rows)
    return vector.astype("float16")  # as the cache keeps it


_SAMPLE = ToolSpec(
    name="files.readText",
    description="Reads the text of a file. Then it is shown.",
    tags=("files",),
    examples=("what does it say",),
    input_schema={"type": "object", "properties": {"path": {"type": "string", "description": "Which file."}}},
)


def vector_mark(table: WordTable) -> bytes:
    """Another one where a tool's vector would be another one than in a file."""
    return sha256(tool_vector(table, _SAMPLE).tobytes()).digest()[:8]


class Similarities(NamedTuple):
    """How near each tool is to one query: by slot, up to about 1."""

    near: "Floats"
    may_find: bool  # the query has a known word; mere pieces tell tools apart, and find none


def _digest(tool: ToolSpec | LazyTool) -> bytes:
    """Of a lazy tool, without making it."""
    return digest_of(tool_texts(tool)) if isinstance(tool, ToolSpec) else tool.digest[:DIGEST_BYTES]


class ToolMeanings:
    """The vectors of tools, which go by *slots*, small numbers.

    A vector is made once, when first needed. With `background`, that is done in a thread, unless few are to be made:
    until it has ended there are no similarities. Otherwise whoever asks waits. Any number of threads may ask.
    """

    def __init__(self, *, background: bool = False, cache: Path | None = None) -> None:
        """`cache` is the file that vectors of very many tools are ready from."""
        self._background = background
        self._cache = cache
        self._waiting: dict[int, ToolSpec | LazyTool | None] = {}  # by slot: vectors to be made, or to be forgotten
        self._vectors: Floats | None = None  # by slot, and room for more: pages that nobody has written take none
        self._used = 0  # slots
        self._making = Lock()
        self._thread: Thread | None = None

    def set(self, slot: int, tool: ToolSpec | LazyTool | None) -> None:
        """The tool that has this slot from now on, if any."""
        if slot < MOST_TOOLS:
            self._waiting[slot] = tool

    def similarities(self, query: str) -> Similarities | None:
        """None while they are not ready, or if there is no table."""
        if not self._is_ready() or (table := load_table()) is None or self._vectors is None:
            return None
        tokens = table.tokens(query, QUERY_TOKENS, MOST_PIECES)
        if not tokens.rows:  # nothing that it knows, or another script
            return None
        used = self._used  # another thread may make more
        near = table.products(self._vectors[: whole_blocks(used)], tokens.rows)
        return Similarities(near[:used], tokens.has_word)

    def load(self) -> None:
        """Begin to make what is to be made, in a thread."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._make, name="onetool-meanings", daemon=True)
            self._thread.start()

    def _is_ready(self) -> bool:
        if not self._waiting:
            return True
        if self._background and (self._vectors is None or len(self._waiting) > FEW):
            self.load()
            return False
        self._make()
        return True

    def _make(self) -> None:
        table = load_table()
        with self._making:
            while waiting := dict(self._waiting):
                if table is not None:
                    used = max(self._used, max(waiting) + 1)
                    vectors = self._with_room(used)
                    self._fill(vectors, table, waiting)
                    self._vectors, self._used = vectors, used
                for slot, tool in waiting.items():
                    if self._waiting[slot] is tool:  # and has not changed meanwhile
                        del self._waiting[slot]

    def _fill(self, vectors: "Floats", table: WordTable, waiting: "Mapping[int, ToolSpec | LazyTool | None]") -> None:
        """Of very many tools, those that the cache has are not made again."""
        is_cached = self._cache is not None and len(waiting) >= LEAST_CACHED
        cache = VectorCache(self._cache, vector_mark(table), DIMENSIONS) if self._cache and is_cached else None
        places, known = ({}, None) if cache is None else cache.read()
        slots: dict[bytes, int] = {}  # one of those that have it
        found: list[tuple[int, int]] = []  # slots, and places in the cache
        new = 0
        for slot, tool in waiting.items():
            if tool is None:
                vectors[slot] = 0.0
                continue
            digest = b"" if cache is None else _digest(tool)
            slots[digest] = slot
            if (place := places.get(digest)) is None:
                vectors[slot] = tool_vector(table, as_spec(tool))
                new += 1
            else:
                found.append((slot, place))
        if known is not None:
            _copy(vectors, known, found)
        if cache is not None and new > len(slots) // SAVED_SHARE:
            cache.write(slots, vectors, MOST_CACHED * len(vectors))

    def _with_room(self, size: int) -> "Floats":
        import numpy as np

        old = self._vectors
        if old is not None and len(old) >= size:
            return old
        vectors = np.zeros((whole_blocks(size + max(FEW, size // 8)), DIMENSIONS), np.float32)
        if old is not None:
            vectors[: len(old)] = old
        return vectors


def whole_blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _copy(vectors: "Floats", known: "Halves", found: list[tuple[int, int]]) -> None:
    """Many together: one by one they take ten times as long."""
    for begin in range(0, len(found), AT_ONCE):
        some = found[begin : begin + AT_ONCE]
        vectors[[slot for slot, _ in some]] = known[[place for _, place in some]]


# The file that vectors are ready from
#
# A vector is found by a digest of what it was made of: the texts of a tool, or, where that tells as much, its name and
# its JSON, so that no tool is made only to find its vector. It is a cache: one that is missing, damaged, of another
# table or layout is as good as none. Vectors are kept in half precision, and so are those that are made: what a query
# finds does not depend on whether there was a file.


VECTORS_FILE = "meanings.cache"
DIGEST_BYTES, CHECK_BYTES = 16, 4
MOST_BYTES = 1 << 30
AT_ONCE = 4_096  # vectors that are made smaller or larger together


def digest_of(texts: Iterable[str]) -> bytes:
    return sha256("\0".join(texts).encode(errors="backslashreplace")).digest()[:DIGEST_BYTES]


class VectorCache:
    """`table` tells tables apart."""

    def __init__(self, file: Path, table: bytes, dimensions: int) -> None:
        self._file = file
        self._head = f"onetool meanings 3 {sys.byteorder} {table.hex()} {dimensions}\n".encode()
        self._dimensions = dimensions

    def read(self) -> "tuple[Mapping[bytes, int], Halves]":
        """The rows of digests, and the vectors."""
        import numpy as np

        none: Halves = np.empty((0, self._dimensions), np.float16)
        data = memoryview(read_marked(self._file, self._head, MOST_BYTES) or b"")
        body = data[CHECK_BYTES:]
        size, odd = divmod(len(body), DIGEST_BYTES + 2 * self._dimensions)
        if odd or data[:CHECK_BYTES] != _check(body):
            return {}, none
        digests = bytes(body[: size * DIGEST_BYTES])
        vectors = np.frombuffer(body[size * DIGEST_BYTES :], np.float16).reshape(size, self._dimensions)
        return {digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES]: row for row in range(size)}, vectors

    def write(self, slots: Mapping[bytes, int], vectors: "Floats", most: int) -> None:
        """Those vectors whose digests are given, after those that the file has: so many in all, the oldest go first.

        Where it can't be written, the next process makes them again.
        """
        places, known = self.read()
        old = {digest: place for digest, place in places.items() if digest not in slots}
        kept = dict(list(old.items())[max(0, len(old) + len(slots) - most) :])
        wanted = list(slots.values())
        parts = (vectors[wanted[at : at + AT_ONCE]] for at in range(0, len(wanted), AT_ONCE))
        new = (part.astype("float16").tobytes() for part in parts)
        body = b"".join((*kept, *slots, known[list(kept.values())].tobytes(), *new))
        try:
            replace_file(self._file, b"".join((self._head, _check(body), body)), sync=False)
        except OSError:
            return


def _check(body: bytes | memoryview) -> bytes:
    return crc32(body).to_bytes(CHECK_BYTES, "big")
