"""Random statements: `python -m tests.sql.fuzz --count N [--first SEED] [--result FILE]`.

Two kinds: words of the grammar in any order, and statements of the fixtures with words taken out,
doubled, exchanged or put in. Each must end in plans of ours or in a StandpipeError.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import track
from tests import report

from .reach import reached, strangers

HERE = Path(__file__).parent
PORTION = 1000
_TOKENS = """
SELECT FROM WHERE AND OR NOT IN LIKE BETWEEN CASE WHEN THEN END CREATE TABLE STREAM AS GROUP BY
PARTITION HAVING WINDOW TUMBLING SIZE JOIN ON WITHIN EMIT CHANGES FINAL LIMIT ORDER BY AFTER
PRINT REPLACE INSERT INTO VALUES DROP ALTER ADD COLUMN DEFINE SET flights by_tail tail delay
tags info planes a b COUNT SUM EXPLODE TRANSFORM CAST ( ) , ; . * + - / % || = <> < > := => -> [ ]
' " ` 1 2.5 1E3 'x' 'it''s' -- /* */ ${x}
"""
TOKENS = (*_TOKENS.split(), "\u00a0", "\u2028", "é", "\\", "\0", "\n")
_PARTS = re.compile(r"\w+|'(?:[^']|'')*'|\s+|.", re.DOTALL)


def fixtures() -> list[list[str]]:
    """The statements of the fixtures, cut into words."""
    texts: list[str] = []
    for file in sorted(HERE.glob("*.sql")):
        for block in file.read_text().split("\n\n"):
            lines = block.partition("----")[0].splitlines()
            texts.append("\n".join(line for line in lines if not line.startswith("#")))
    return [_PARTS.findall(text) for text in texts if text.strip()]


FIXTURES = fixtures()
#: those that become plans: most of what is close to them is refused late, or not at all
GOOD = [words for words in FIXTURES if any(True for _ in reached("".join(words)))]


@dataclass
class Tried:
    """What became of random statements. `slowest`: (seconds, statement)."""

    statements: int = 0
    plans: int = 0
    slowest: tuple[float, str] = (0.0, "")
    faults: list[str] = field(default_factory=list[str])

    def add(self, other: Tried) -> None:
        self.statements += other.statements
        self.plans += other.plans
        self.slowest = max(self.slowest, other.slowest)
        self.faults += other.faults


def run(seed: int, count: int) -> Tried:
    """Raises whatever a statement raised that is no StandpipeError; see `try_each`."""
    tried = try_each(statements(seed, count))
    assert not tried.faults, tried.faults[0]
    return tried


def statements(seed: int, count: int) -> Iterable[str]:
    chance = random.Random(seed)
    for _ in range(count):
        yield _soup(chance) if chance.random() < 0.5 else _mutant(chance)


def try_each(texts: Iterable[str]) -> Tried:
    tried = Tried()
    for text in texts:
        began = time.perf_counter()
        try:
            for plan in reached(text):
                tried.plans += 1
                if found := strangers(plan):
                    tried.faults.append(f"{sorted(found)} would reach Spark: {text!r}")
        except Exception as error:
            tried.faults.append(f"{type(error).__name__}: {error}: {text!r}")
        tried.statements += 1
        tried.slowest = max(tried.slowest, (time.perf_counter() - began, text))
    return tried


def _soup(chance: random.Random) -> str:
    words = chance.choices(TOKENS, k=chance.randrange(1, 40))
    head = chance.choice(["", "SELECT ", "CREATE STREAM s AS SELECT tail, "])
    return head + " ".join(words)


def _mutant(chance: random.Random) -> str:
    words = [*chance.choice(GOOD)]
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(words) + 1)
        other = chance.choice(chance.choice(FIXTURES))
        match chance.randrange(4):
            case 0:
                del words[place : place + chance.randrange(1, 4)]
            case 1:
                words[place:place] = words[place : place + chance.randrange(1, 8)]
            case 2:
                words[place : place + 1] = [other]
            case _:
                words.insert(place, chance.choice([other, chance.choice(TOKENS)]))
        words = words or [other]
    return "".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="first seed; one for 1,000 statements")
    parser.add_argument("--result", type=Path, help="write the totals into this file")
    args = parser.parse_args()
    whole, circumstances = Tried(), report.circumstances()
    for seed in track(range(args.first, args.first + args.count // PORTION), "statements"):
        whole.add(try_each(statements(seed, PORTION)))
    for fault in whole.faults[:20]:
        print(fault)
    slowest_ms = round(1000 * whole.slowest[0])
    print(f"slowest: {slowest_ms} ms, {whole.slowest[1]!r}")
    print(f"{whole.plans:,} plans of {whole.statements:,} statements")
    print(f"{whole.statements - len(whole.faults)} passed, {len(whole.faults)} failed")
    if args.result:
        totals = {
            "question": "does a random statement end in a plan of ours or a refusal",
            **circumstances,
            "statements": whole.statements,
            "plans": whole.plans,
            "failed": len(whole.faults),
            "slowest_ms": slowest_ms,
        }
        report.write(args.result, totals)
    sys.exit(bool(whole.faults) or not whole.plans)


if __name__ == "__main__":
    main()
