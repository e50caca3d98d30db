"""The stem of an English word, so that `convert`, `converts`, `converting`, `converter` and `conversion` meet.

Light on purpose: a stem need not be a word, it only has to be the same for words that belong together. A wrong stem
costs little, since the same rules run over the tools and over the query.
"""

SHORTEST = 3  # letters that must stay: below this too many words fall together
LONGEST = 40  # no word is longer; hashes and keys are left as they are
VOWELS = frozenset("aeiouy")

# The longest first, so that `-ization` is not taken for `-ation`. Each: the ending, what takes its place, and how many
# letters must be left: an ending that looks like a word's own letters (document, station, table) has to prove itself.
ENDINGS = (
    ("ization", "iz", 5), ("isation", "iz", 5), ("ability", "", 5), ("ibility", "", 5), ("ersion", "ert", 5),
    ("ation", "at", 5), ("ment", "", 5), ("ness", "", 4), ("able", "", 4), ("ible", "", 4), ("ance", "", 5),
    ("ence", "", 5), ("sion", "s", 5), ("tion", "t", 5), ("ysis", "ys", 4), ("eed", "eed", 3), ("ful", "", 3),
    ("ive", "", 4), ("ing", "", 3), ("ity", "", 4), ("ise", "iz", 4), ("ed", "", 3), ("er", "", 3), ("or", "", 3),
    ("ly", "", 3), ("al", "", 4),
)  # fmt: skip


def stem(word: str) -> str:
    """What the forms of a lower-case word share. A word that is not plain ASCII letters is its own stem."""
    if len(word) <= SHORTEST or len(word) > LONGEST or not (word.isascii() and word.isalpha()):
        return word
    return _trimmed(_without_ending(_singular(word)))


def _singular(word: str) -> str:
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_ending(word: str) -> str:
    for ending, instead, least in ENDINGS:
        if word.endswith(ending):
            rest = word[: -len(ending)] + instead
            return rest if len(rest) >= least and not VOWELS.isdisjoint(rest) else word
    return word


def _trimmed(word: str) -> str:
    """Without what comes and goes before an ending: creat(e), recommend(at)ion, run(n)ing, query/queries."""
    if word[-1] == "e" and len(word) > SHORTEST:
        word = word[:-1]
    if word.endswith("at") and len(word) > SHORTEST + 3:
        word = word[:-2]
    if word.endswith("iz") and len(word) > SHORTEST + 2:
        word = word[:-1]
    if word.endswith("yz"):
        word = word[:-1] + "s"
    if word[-1] == word[-2] and word[-1] not in VOWELS and len(word) > SHORTEST:
        word = word[:-1]
    return word[:-1] + "i" if word[-1] == "y" else word
