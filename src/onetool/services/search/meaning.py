"""ToolMeanings: how near the meaning of each tool is to that of a query.

A table gives each word, or piece of a word, a vector and a weight. A text is the weighted sum of its words, made one
long; two texts are as near as their vectors' product. That is all: no network, no model. The table was trained for
texts of tools, see NOTICE. It knows English words; texts in other scripts have no meaning here, and are found by their
words.

Vectors of many tools come from a file, where each is found by a digest of the texts that it was made of. They have half
precision there, and so have those that are made: what a query finds does not depend on whether there was a file.
"""

import logging
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from itertools import pairwise, repeat
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple

import numpy as np

from onetool.core.registry import LazyTool, as_spec
from onetool.core.spec import ToolSpec
from onetool.services.search.files import read_arrays, write_arrays
from onetool.services.search.words import EVERYDAY, said_of_parameters

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Halves = np.ndarray[tuple[int, ...], np.dtype[np.float16]]

log = logging.getLogger("onetool")

TABLE = Path(__file__).with_name("table")
DIMENSIONS = 256

QUERY_TOKENS, TOOL_TOKENS = 64, 128  # as the table was trained; what comes later in a text says little
TEXT_OF_TOKENS = 16  # characters of a text that are looked at for each of its tokens
MAX_PIECES = 4  # of one word in a query: what falls into more is a mistake, a key or another language
MAX_LETTERS = 40  # letters; in a tool, a name of many words may be written as one
MAX_SPLIT_WORDS = 50_000  # whose pieces are remembered

# A tool is the sum of its texts. Descriptions begin with what matters, and go on with rules for the caller.
FIRST_SENTENCE, ALL_TEXT, NAME, EXAMPLES = 0.5, 0.5, 0.15, 0.5

FEW = 32  # tools whose vectors are made while a query waits: some milliseconds
MIN_CACHED = 500  # tools whose vectors are looked for in the cache: fewer are made as quickly
SAVED_SHARE = 20  # one new vector of so many: then the cache is written anew
MAX_CACHED_SHARE = 2  # vectors in the file for each that is in use: which are of tools that are gone is not known
DIGEST_BYTES = 16
VECTORS_FILE = "meanings.cache"
BLOCK = 32  # vectors that are multiplied together
PROBES = 32  # products that show what a matrix library does; one or two would not
MAX_TOOLS = 120_000  # slots: 120 MB; those that come later are found by their words

_ACCENTS = re.compile("[\u0300-\u036f]")
_WORD = re.compile(r"[a-z0-9]{2,}")  # a letter or a digit alone means nothing
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")


class Tokens(NamedTuple):
    rows: list[int]  # of the table
    has_word: bool  # not only pieces, and not only everyday words


class WordTable:
    """The table: text -> vector. Raises OSError or ValueError where it can't be loaded."""

    def __init__(self, folder: Path = TABLE) -> None:
        words = (folder / "vocabulary.txt").read_text("ascii").split()
        self._rows = {word: row for row, word in enumerate(words)}
        vectors = np.memmap(folder / "vectors.i8", np.int8, mode="r", shape=(len(words), DIMENSIONS))
        self._vectors = vectors.view(np.ndarray)  # whose rows are taken in half the time
        self._weights = np.fromfile(folder / "weights.f32", "<f4", count=len(words))
        self._pieces = lru_cache(MAX_SPLIT_WORDS)(lambda word: tuple(self._split(word)))
        some = [self.vector([row, row + 1]) for row in range(PROBES)]
        probes = (np.matmul(np.tile(one, (1, BLOCK, 1)), other) for one, other in pairwise(some))
        self._has_equal_blocks = all(np.unique(probe).size == 1 for probe in probes)

    def vector(self, rows: list[int]) -> Floats:
        """Return a vector of length one; all zeros without tokens."""
        if not rows:
            return np.zeros(DIMENSIONS, np.float32)
        summed = self._weights[rows] @ self._vectors[rows].astype(np.float32)
        return summed / (np.sqrt(summed.dot(summed)) or 1.0)

    def products(self, vectors: Floats, rows: list[int]) -> Floats:
        """Return how near each of the vectors, which are whole blocks, is to a text.

        A matrix library gives equal rows different last digits where there is an end nearby, and its threads wait for
        each other, which takes a hundred times as long on a busy machine. It does neither with a small block.
        """
        vector = self.vector(rows)
        if not self._has_equal_blocks:
            return np.einsum("ij,j->i", vectors, vector)  # takes up to twice the time
        return np.matmul(vectors.reshape(-1, BLOCK, DIMENSIONS), vector).reshape(-1)

    def tokens(self, text: str, most: int, pieces_each: int = MAX_LETTERS) -> Tokens:
        """Return as many tokens as that, of words of at most so many pieces."""
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
        """Yield the longest known pieces from the left (WordPiece); nothing if a part is unknown."""
        found, start = list[int](), 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1) if len(word) <= MAX_LETTERS else ()
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
    """Return the table of this process, or None, logged once, where it can't be loaded."""
    with _loading:
        return _load_once()


@cache
def _load_once() -> WordTable | None:
    try:
        return WordTable()
    except (OSError, ValueError) as error:
        log.warning("search goes by words alone, since its table can't be loaded: %s: %s", type(error).__name__, error)
        return None


# Tools


def tool_texts(spec: ToolSpec) -> tuple[str, str, str, str]:
    """Return the texts that a tool is the sum of."""
    name = _CAMEL.sub(" ", spec.name)
    description = spec.description.strip()
    first = _SENTENCE.split(description[:1000], maxsplit=1)[0]
    said = (name, *spec.tags, description, *said_of_parameters(spec.input_schema))
    return f"{name} {first}", " ".join(said), name, " ".join(spec.examples)


def tool_vector(table: WordTable, spec: ToolSpec) -> Halves:
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


class Similarities(NamedTuple):
    """Return how near each of some tools is to one query, up to about 1."""

    near: Floats
    may_find: bool  # the query has a known word; mere pieces tell tools apart, and find none


def digest_of(tool: ToolSpec | LazyTool) -> bytes:
    """Return a digest of the texts of a tool. A lazy tool is not made for that."""
    if not isinstance(tool, ToolSpec):
        return tool.digest[:DIGEST_BYTES]
    return sha256("\0".join(tool_texts(tool)).encode(errors="backslashreplace")).digest()[:DIGEST_BYTES]


class ToolMeanings:
    """The vectors of tools, which go by keys.

    A vector is made once, when first needed. With `background`, that is done in a thread, unless few are to be made:
    until it has ended there are no similarities. Otherwise whoever asks waits. Any number of threads may ask.
    """

    def __init__(self, *, background: bool = False, cache: Path | None = None) -> None:
        """`cache` is the file that vectors of very many tools are ready from."""
        self._background, self._cache = background, cache
        self._pending: dict[str, ToolSpec | LazyTool | None] = {}  # vectors to be made, or to be forgotten
        self._vectors = np.zeros((0, DIMENSIONS), np.float32)  # whole blocks, and room for more
        self._row_of: dict[str, int] = {}
        self._free: list[int] = []
        self._rows: tuple[list[str], np.ndarray] = ([], np.empty(0, int))  # of the keys that were asked for last
        self._making = Lock()
        self._thread: Thread | None = None

    def set(self, key: str, tool: ToolSpec | LazyTool | None) -> None:
        """Give this key to a tool, or to none."""
        self._pending[key] = tool

    def similarities(self, query: str, keys: list[str]) -> Similarities | None:
        """Return how near the tools of these keys are. None while that is not ready, or if there is no table."""
        if not self._is_ready() or (table := load_table()) is None:
            return None
        tokens = table.tokens(query, QUERY_TOKENS, MAX_PIECES)
        if not tokens.rows:  # nothing that it knows, or another script
            return None
        with self._making:
            if self._rows[0] is not keys:
                self._rows = keys, np.fromiter(map(self._row_of.get, keys, repeat(-1)), np.int64, len(keys))
            vectors, rows = self._vectors, self._rows[1]
        return Similarities(np.append(table.products(vectors, tokens.rows), np.float32(0))[rows], tokens.has_word)

    def load(self) -> None:
        """Begin to make what is pending, in a thread."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._make, name="onetool-meanings", daemon=True)
            self._thread.start()

    def _is_ready(self) -> bool:
        if not self._pending:
            return True
        if self._background and (not self._row_of or len(self._pending) > FEW):
            self.load()
            return False
        self._make()
        return True

    def _make(self) -> None:
        table = load_table()
        with self._making:
            while pending := dict(self._pending):
                if table is not None:
                    self._fill(table, pending)
                for key, tool in pending.items():
                    if self._pending[key] is tool:  # and has not changed meanwhile
                        del self._pending[key]

    def _fill(self, table: WordTable, pending: Mapping[str, ToolSpec | LazyTool | None]) -> None:
        """Make the vectors of these tools. Of very many, those that the file has are not made again."""
        self._free += [self._row_of.pop(key) for key, tool in pending.items() if tool is None and key in self._row_of]
        # In the order of the keys, which is about that of the slots: so a query reads memory in its order.
        every = [(self._row(key), pending[key]) for key in sorted(pending) if pending[key] is not None]
        tools = {row: tool for row, tool in every if row is not None and tool is not None}
        vectors = self._with_room(len(self._row_of) + len(self._free))
        file = VectorFile(self._cache, table) if self._cache is not None and len(tools) >= MIN_CACHED else None
        known = {} if file is None else file.read()
        digests, new = dict[bytes, int](), 0
        for row, tool in tools.items():
            digest = b"" if file is None else digest_of(tool)
            digests[digest] = row
            if (vector := known.get(digest)) is None:
                vector = tool_vector(table, as_spec(tool))
                new += 1
            vectors[row] = vector
        if file is not None and new > len(digests) // SAVED_SHARE:
            file.write(
                known | {digest: vectors[row] for digest, row in digests.items()}, MAX_CACHED_SHARE * len(vectors)
            )
        self._vectors, self._rows = vectors, ([], np.empty(0, int))

    def _row(self, key: str) -> int | None:
        """Return the row of a key. With too many tools there is none, and words alone find it."""
        if key not in self._row_of:
            row = self._free.pop() if self._free else len(self._row_of)
            if row >= MAX_TOOLS:
                return None
            self._row_of[key] = row
        return self._row_of[key]

    def _with_room(self, size: int) -> Floats:
        old = self._vectors
        if len(old) >= size:
            return old
        vectors = np.zeros((-(-(size + max(FEW, size // 8)) // BLOCK) * BLOCK, DIMENSIONS), np.float32)
        vectors[: len(old)] = old
        return vectors


class VectorFile:
    """Vectors by the digests of what they were made of, for one table."""

    def __init__(self, file: Path, table: WordTable) -> None:
        self._file = file
        mark = sha256(tool_vector(table, _SAMPLE).tobytes()).hexdigest()[:16]  # another one for other vectors
        self._head = f"meanings 4 {mark}"

    def read(self) -> dict[bytes, Halves]:
        found = read_arrays(self._file, self._head, ("digests", "vectors"))
        digests = b"" if found is None else found["digests"].tobytes()
        if found is None or found["vectors"].shape != (len(digests) // DIGEST_BYTES, DIMENSIONS):
            return {}
        every = (digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES))
        return dict(zip(every, found["vectors"], strict=True))

    def write(self, vectors: Mapping[bytes, Floats | Halves], limit: int) -> None:
        """Write so many, the last ones: nobody knows which of the others are of tools that are gone."""
        kept = [*vectors.items()][-limit:]
        digests = np.frombuffer(b"".join(digest for digest, _ in kept), np.uint8)
        halves = np.empty((len(kept), DIMENSIONS), np.float16)
        for row, (_, vector) in enumerate(kept):
            halves[row] = vector
        write_arrays(self._file, self._head, {"digests": digests, "vectors": halves})
