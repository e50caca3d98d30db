"""ToolMeanings: the similarity between a query and each tool, by meaning.

A table gives each word, or piece of a word, a vector and a weight. The vector of a text is the weighted sum of its
words, normalised; the similarity of two texts is the product of their vectors. No network or model is used. The table
was trained on descriptions of tools, see NOTICE. It has English words; text in other scripts has no vectors, and is
only found by its words.

Vectors of many tools are cached in a file, by a digest of their text. The file has half precision, and new vectors are
rounded the same way, so results don't depend on the cache.
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
from onetool.services.search.words import EVERYDAY, parameter_texts

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Halves = np.ndarray[tuple[int, ...], np.dtype[np.float16]]

log = logging.getLogger("onetool")
TABLE = Path(__file__).with_name("table")
DIMENSIONS = 256

QUERY_TOKENS, TOOL_TOKENS = 64, 128  # as in training; later parts of a text contribute little
CHARACTERS_PER_TOKEN = 16  # characters of a text read per token
MAX_PIECES = 4  # of one query word; words with more are typos, keys or another language
MAX_LETTERS = 40  # in a word; a name of many words may be written as one
MAX_SPLIT_WORDS = 50_000  # words with cached pieces

# Weights of a tool's fields. Descriptions begin with the purpose, and continue with rules for callers.
FIRST_SENTENCE, ALL_TEXT, NAME, EXAMPLES = 0.5, 0.5, 0.15, 0.5

FEW = 32  # tools whose vectors are made while a query waits: a few milliseconds
MIN_CACHED = 500  # tools; for fewer, the cache saves no time
SAVED_SHARE = 20  # the cache is rewritten if more than 1 in 20 vectors is new
MAX_CACHED_SHARE = 2  # vectors in the file for each in use, since unused ones can't be recognised
DIGEST_BYTES = 16
VECTORS_FILE = "meanings.cache"
BLOCK = 32  # vectors multiplied together
PROBES = 32  # products that test a matrix library; one or two are not enough
MAX_TOOLS = 120_000  # 120 MB; further tools are found only by words

_ACCENTS = re.compile("[\u0300-\u036f]")
_WORD = re.compile(r"[a-z0-9]{2,}")  # a single letter or digit has no meaning
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")


class Tokens(NamedTuple):
    rows: list[int]  # of the table
    has_word: bool  # has a whole word that isn't an everyday word


class WordTable:
    """The table of word vectors. Raises OSError or ValueError if it can't be loaded."""

    def __init__(self, folder: Path = TABLE) -> None:
        words = (folder / "vocabulary.txt").read_text("ascii").split()
        self._rows = {word: row for row, word in enumerate(words)}
        vectors = np.memmap(folder / "vectors.i8", np.int8, mode="r", shape=(len(words), DIMENSIONS))
        self._vectors = vectors.view(np.ndarray)  # rows of an ndarray are read in half the time
        self._weights = np.fromfile(folder / "weights.f32", "<f4", count=len(words))
        self._pieces = lru_cache(MAX_SPLIT_WORDS)(lambda word: tuple(self._split(word)))
        some = [self.vector([row, row + 1]) for row in range(PROBES)]
        probes = (np.matmul(np.tile(one, (1, BLOCK, 1)), other) for one, other in pairwise(some))
        self._has_equal_blocks = all(np.unique(probe).size == 1 for probe in probes)

    def vector(self, rows: list[int]) -> Floats:
        """Return the normalised vector of a text; all zeros without tokens."""
        if not rows:
            return np.zeros(DIMENSIONS, np.float32)
        summed = self._weights[rows] @ self._vectors[rows].astype(np.float32)
        return summed / (np.sqrt(summed.dot(summed)) or 1.0)

    def products(self, vectors: Floats, rows: list[int]) -> Floats:
        """Return the similarity of each vector to a text. The vectors must be whole blocks.

        In large products, matrix libraries may round equal rows differently near the end, and their threads wait for
        each other, which takes a hundred times as long on a busy machine. Small blocks avoid both.
        """
        vector = self.vector(rows)
        if not self._has_equal_blocks:
            return np.einsum("ij,j->i", vectors, vector)  # takes up to twice the time
        return np.matmul(vectors.reshape(-1, BLOCK, DIMENSIONS), vector).reshape(-1)

    def tokens(self, text: str, limit: int, max_pieces: int = MAX_LETTERS) -> Tokens:
        """Return at most `limit` tokens, of words with at most `max_pieces` pieces."""
        rows, has_word = list[int](), False
        text = text[: limit * CHARACTERS_PER_TOKEN].lower()
        if not text.isascii():
            text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
        for word in _WORD.findall(text):
            pieces = self._pieces(word)
            if len(pieces) > max_pieces:
                continue
            rows += pieces
            has_word = has_word or (len(pieces) == 1 and word not in EVERYDAY)
            if len(rows) >= limit:
                break
        return Tokens(rows[:limit], has_word)

    def _split(self, word: str) -> Iterator[int]:
        """Yield the longest known pieces from the left (WordPiece); nothing if a part is unknown."""
        pieces, start = list[int](), 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1) if len(word) <= MAX_LETTERS else ()
            end = next((end for end in ends if mark + word[start:end] in self._rows), None)
            if end is None:
                return
            pieces.append(self._rows[mark + word[start:end]])
            start = end
        yield from pieces


_loading = Lock()


def load_table() -> WordTable | None:
    """Return the table of this process. If it can't be loaded, log this once and return None."""
    with _loading:
        return _load_once()


@cache
def _load_once() -> WordTable | None:
    try:
        return WordTable()
    except (OSError, ValueError) as error:
        log.warning("search uses words only, because its table can't be loaded: %s: %s", type(error).__name__, error)
        return None


# Tools


def tool_texts(spec: ToolSpec) -> tuple[str, str, str, str]:
    """Return the strings whose weighted vectors are summed to the vector of a tool."""
    name = _CAMEL.sub(" ", spec.name)
    description = spec.description.strip()
    first = _SENTENCE.split(description[:1000], maxsplit=1)[0]
    texts = (name, *spec.tags, description, *parameter_texts(spec.input_schema))
    return f"{name} {first}", " ".join(texts), name, " ".join(spec.examples)


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
    """The similarity of each tool to a query, up to about 1."""

    near: Floats
    may_find: bool  # the query has a known word; pieces alone rank tools, but don't find them


def digest_of(tool: ToolSpec | LazyTool) -> bytes:
    """Return a digest of a tool's text, without loading a lazy tool."""
    if not isinstance(tool, ToolSpec):
        return tool.digest[:DIGEST_BYTES]
    return sha256("\0".join(tool_texts(tool)).encode(errors="backslashreplace")).digest()[:DIGEST_BYTES]


class ToolMeanings:
    """The vectors of tools by key. All methods are thread-safe.

    A vector is made once, when first needed. With `background`, a thread makes them unless they are few, and until it
    has finished there are no similarities. Otherwise, callers wait.
    """

    def __init__(self, *, background: bool = False, cache: Path | None = None) -> None:
        """Start without vectors. `cache` is the file for vectors of many tools."""
        self._background, self._cache = background, cache
        self._pending: dict[str, ToolSpec | LazyTool | None] = {}  # vectors to make (tool) or to remove (None)
        self._vectors = np.zeros((0, DIMENSIONS), np.float32)  # whole blocks, with spare room
        self._row_of: dict[str, int] = {}
        self._free: list[int] = []
        self._rows: tuple[list[str], np.ndarray] = ([], np.empty(0, int))  # of the last requested keys
        self._making = Lock()
        self._thread: Thread | None = None

    def set(self, key: str, tool: ToolSpec | LazyTool | None) -> None:
        """Assign a key to a tool, or remove it."""
        self._pending[key] = tool

    def similarities(self, query: str, keys: list[str]) -> Similarities | None:
        """Return the similarity of each tool to a query; None while vectors are being made, or without a table."""
        if not self._is_ready() or (table := load_table()) is None:
            return None
        tokens = table.tokens(query, QUERY_TOKENS, MAX_PIECES)
        if not tokens.rows:  # no known word, or another script
            return None
        with self._making:
            if self._rows[0] is not keys:
                self._rows = keys, np.fromiter(map(self._row_of.get, keys, repeat(-1)), np.int64, len(keys))
            vectors, rows = self._vectors, self._rows[1]
        return Similarities(np.append(table.products(vectors, tokens.rows), np.float32(0))[rows], tokens.has_word)

    def load(self) -> None:
        """Start making pending vectors in a thread."""
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
                    if self._pending[key] is tool:  # unless it has changed since
                        del self._pending[key]

    def _fill(self, table: WordTable, pending: Mapping[str, ToolSpec | LazyTool | None]) -> None:
        """Make or remove pending vectors. With many tools, use the cache file."""
        self._free += [self._row_of.pop(key) for key, tool in pending.items() if tool is None and key in self._row_of]
        # Sorted by key, roughly the order of slots, so that queries read memory sequentially.
        tools: dict[int, ToolSpec | LazyTool] = {}
        for key in sorted(pending):
            if (tool := pending[key]) is None:
                continue
            if key not in self._row_of:
                row = self._free.pop() if self._free else len(self._row_of)
                if row >= MAX_TOOLS:  # further tools are only found by their words
                    continue
                self._row_of[key] = row
            tools[self._row_of[key]] = tool
        vectors, size = self._vectors, len(self._row_of) + len(self._free)
        if len(vectors) < size:  # grow, with room for more
            vectors = np.zeros((-(-(size + max(FEW, size // 8)) // BLOCK) * BLOCK, DIMENSIONS), np.float32)
            vectors[: len(self._vectors)] = self._vectors
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


class VectorFile:
    """A cache file of vectors by the digest of their text, for one table."""

    def __init__(self, file: Path, table: WordTable) -> None:
        self._file = file
        mark = sha256(tool_vector(table, _SAMPLE).tobytes()).hexdigest()[:16]  # changes with the table
        self._head = f"meanings 4 {mark}"

    def read(self) -> dict[bytes, Halves]:
        found = read_arrays(self._file, self._head, ("digests", "vectors"))
        digests = b"" if found is None else found["digests"].tobytes()
        if found is None or found["vectors"].shape != (len(digests) // DIGEST_BYTES, DIMENSIONS):
            return {}
        every = (digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES))
        return dict(zip(every, found["vectors"], strict=True))

    def write(self, vectors: Mapping[bytes, Floats | Halves], limit: int) -> None:
        """Write the last `limit` vectors; unused ones can't be recognised."""
        latest = [*vectors.items()][-limit:]
        digests = np.frombuffer(b"".join(digest for digest, _ in latest), np.uint8)
        halves = np.empty((len(latest), DIMENSIONS), np.float16)
        for row, (_, vector) in enumerate(latest):
            halves[row] = vector
        write_arrays(self._file, self._head, {"digests": digests, "vectors": halves})
