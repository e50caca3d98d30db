"""What came of one part of a run, and all parts as a table."""

from collections.abc import Sequence
from dataclasses import dataclass, field

COLUMNS = ("passed", "failed", "warnings", "skipped", "total")
SHOWN = 600  # characters of a message


@dataclass
class Outcome:
    """Counted checks of one part. `told` has a line for each that failed or warned."""

    what: str
    passed: int = 0
    failed: int = 0
    warnings: int = 0
    skipped: int = 0
    told: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.warnings + self.skipped

    def passes(self) -> None:
        self.passed += 1

    def fails(self, why: str) -> None:
        self.failed += 1
        self.told.append(f"FAILED  {short(why)}")

    def warns(self, why: str) -> None:
        self.warnings += 1
        self.told.append(f"warning {short(why)}")


def short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]} …"


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.told:
            print(f"\n{outcome.what}:", *outcome.told, sep="\n  ")
    wide = max(len(outcome.what) for outcome in outcomes)
    print(f"\n{'':{wide}}", *(f"{column:>8}" for column in COLUMNS))
    for outcome in outcomes:
        print(f"{outcome.what:{wide}}", *(f"{getattr(outcome, column):>8}" for column in COLUMNS))
