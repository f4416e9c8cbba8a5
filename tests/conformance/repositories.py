"""Conformance: which statements of public repositories run, as `standpipe check` judges them.

    python -m tests.conformance.repositories --clones DIR [--only GLOB] [--list] [--report FILE]

`repositories.json` names the repositories, commits and files; none of their text is here. Clone
each, `git clone https://github.com/OWNER/NAME DIR/OWNER+NAME`, and run this: a line per repository,
last the sum. `--list` prints what is refused. No Kafka, no Spark. Formats that need a schema
registry are judged as JSON (`standpipe check --avro-as-json`).

Not every statement can be judged. Four kinds are counted apart (`NOT_JUDGED`): what ksqlDB refuses
as well, as somebody found who looked at each (`refused_by_ksqldb`, with the rule and the lines);
what reads a source that its repository does not declare, or columns that only a schema registry
has; and what calls the repository's own Java. What follows from one of these counts like it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from tests.conformance.snippets import statements

from standpipe.node.worker.statements.dry_run import DryRun, StatementVerdict
from standpipe.sql.syntax import parser
from standpipe.sql.syntax.ast_statements import CreateSource

Kind = Literal["runs", "refused", "connector", "ksqldb", "undeclared", "registry", "function"]

LISTED: Final = Path(__file__).with_name("repositories.json")
NOT_JUDGED: Final[Mapping[Kind, str]] = {
    "ksqldb": "ksqlDB refuses them as well",
    "undeclared": "over a source that the repository does not declare",
    "registry": "columns that only a schema registry has",
    "function": "functions of the repository's own, in Java",
}
#: (what is said of a refused statement, the rule behind it); the first that is found counts
RULES: Final = (
    ("already belongs to", "two results with one KAFKA_TOPIC"),
    ("it was there before", "DELETE TOPIC of a topic that was there before"),
    ("is internal|KSQL_PROCESSING_LOG", "the processing log, as a topic or a stream"),
    ("its topic .* is that of table", "INSERT INTO … VALUES into the topic of a result"),
    ("Cannot compare .*STRUCT", "a comparison of STRUCTs whose fields have other types"),
)
FOLLOWS: Final = "what follows from a refused one"
UNEXPLAINED: Final = "nobody has looked yet"

_REGISTRY: Final = re.compile(r"FORMAT\s*=\s*'(?:AVRO|JSON_SR|PROTOBUF|PROTOBUF_NOSR)'", re.I)
_NO_COLUMNS: Final = "does not define any columns"
_NO_COLUMN: Final = re.compile(r"cannot be resolved|Column name `|contains no value columns")
_NO_FUNCTION: Final = re.compile(r"any functions with the name '(\w+)'")
_NO_SOURCE: Final = re.compile(
    r"(?:Source|Stream|Table) \S+ does not exist|Could not find STREAM/TABLE|unknown stream/table"
    r"|Unknown queryId"
)
#: ksqlDB makes it where it is told to log: no repository declares it
_PROCESSING_LOG: Final = "KSQL_PROCESSING_LOG"


class Repository(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of `repositories.json`. `sessions`: files in the order in which they run; each begins
    with an empty catalog."""

    repository: str
    commit: str
    sessions: tuple[tuple[str, ...], ...]
    #: functions that the repository itself has in Java
    functions: frozenset[str] = frozenset()
    #: path -> rule of ksqlDB -> lines of statements that it refuses by that rule
    refused_by_ksqldb: dict[str, dict[str, tuple[int, ...]]] = {}

    def is_refused(self, path: str, line: int) -> bool:
        """Whether ksqlDB refuses the statement at this line."""
        return any(line in lines for lines in self.refused_by_ksqldb.get(path, {}).values())


@dataclass(frozen=True)
class Judged:
    """What is counted of one statement. `follows`: from those before it, not from what it says."""

    path: str
    verdict: StatementVerdict
    kind: Kind
    follows: bool = False


@dataclass
class Session:
    """One session of a repository: what becomes of a statement depends on those before it."""

    of: Repository
    #: sources that are not there, or not as the last statement says that names them -> why
    _lacking: dict[str, Kind] = field(default_factory=dict[str, Kind])
    #: sources that have only the columns which they declare, and ksqlDB asks a registry for more
    _partial: set[str] = field(default_factory=set[str])

    def judged(self, path: str, verdict: StatementVerdict) -> Judged:
        known = _known(verdict)
        causes: list[Kind] = [why for name, why in sorted(self._lacking.items()) if name in known]
        kind: Kind
        if verdict.status == "ok":
            kind = "runs"
        elif verdict.status == "connector":
            kind = "connector"
        elif self.of.is_refused(path, verdict.line):
            kind = "ksqldb"
        elif causes:
            kind = "refused" if "refused" in causes else causes[0]
        else:
            kind = self._own_kind(verdict)
        self._note(verdict, kind)
        return Judged(path, verdict, kind, follows=bool(causes))

    def _note(self, verdict: StatementVerdict, kind: Kind) -> None:
        if verdict.status in ("refused", "blocked"):
            self._lacking.update(dict.fromkeys(_changed(verdict), kind))
        elif verdict.makes:
            self._lacking.pop(verdict.makes, None)
            if verdict.names & self._partial or _is_partial(verdict.statement):
                self._partial.add(verdict.makes)

    def _own_kind(self, verdict: StatementVerdict) -> Kind:
        """Of a statement that is refused for what it says itself."""
        reason = verdict.reason
        if _NO_COLUMNS in reason or (_NO_COLUMN.search(reason) and verdict.names & self._partial):
            return "registry"
        function = _NO_FUNCTION.search(reason)
        if function and function[1] in self.of.functions:
            return "function"
        if _NO_SOURCE.search(reason) and _PROCESSING_LOG not in reason:
            return "undeclared"
        return "refused"


def _known(verdict: StatementVerdict) -> set[str]:
    return {*verdict.names, verdict.makes}


def _changed(verdict: StatementVerdict) -> frozenset[str]:
    """The sources that a refused statement leaves as they were."""
    if verdict.makes:
        return frozenset((verdict.makes,))
    return verdict.names if re.match(r"DROP\s", verdict.statement, re.I) else frozenset()


def _is_partial(text: str) -> bool:
    """Whether ksqlDB would ask a schema registry for the value columns."""
    (statement,) = parser.parse(text)
    if not isinstance(statement, CreateSource) or not _REGISTRY.search(text):
        return False
    return not any(column.mark == "" for column in statement.columns)


def judged(repository: Repository, text_of: Mapping[str, str]) -> Iterator[Judged]:
    """All statements of a repository. `text_of`: by path."""
    for paths in repository.sessions:
        session, run = Session(repository), DryRun(as_json=True)
        for path in paths:
            for verdict in run.verdicts(statements(path, text_of[path])):
                yield session.judged(path, verdict)


def rule_of(one: Judged) -> str:
    """The rule by which a statement is refused."""
    said = one.verdict.reason
    other = FOLLOWS if one.follows else UNEXPLAINED
    return next((rule for pattern, rule in RULES if re.search(pattern, said)), other)


def summary(found: Mapping[str, Sequence[Judged]]) -> dict[str, Any]:
    """Counts over all repositories. No statement is quoted."""
    everything = [one for each in found.values() for one in each]
    kinds: Counter[Kind] = Counter(one.kind for one in everything)
    refused = Counter(rule_of(one) for one in everything if one.kind == "refused")
    per = {name: Counter(one.kind for one in each) for name, each in found.items()}
    able = {name: counts for name, counts in per.items() if counts["runs"] + counts["refused"]}
    return {
        "statements": len(everything),
        "judged": kinds["runs"] + kinds["refused"],
        "runs": kinds["runs"],
        "runs_percent": _percent(kinds),
        "for_kafka_connect": kinds["connector"],
        "refused": dict(refused.most_common()),
        "not_judged": {text: kinds[kind] for kind, text in NOT_JUDGED.items()},
        "repositories": len(found),
        "with_judged_statements": len(able),
        "whole": sum(not counts["refused"] for counts in able.values()),
        "by_kind": dict(_by_kind(everything)),
        "per_repository": {
            name: {"runs": counts["runs"], "refused": counts["refused"], "all": counts.total()}
            for name, counts in per.items()
        },
    }


def _by_kind(everything: Iterable[Judged]) -> Iterator[tuple[str, dict[str, int]]]:
    counts: dict[str, Counter[Kind]] = {
        name: Counter() for name in ("create", "query", "insert_values", "other")
    }
    for one in everything:
        counts[_statement_kind(one.verdict.statement)][one.kind] += 1
    for name, kinds in counts.items():
        yield name, {"judged": kinds["runs"] + kinds["refused"], "runs": kinds["runs"]}


def _statement_kind(text: str) -> str:
    words = text.upper().split()
    if words[0] == "INSERT":
        return "insert_values" if "SELECT" not in words else "create"
    return {"CREATE": "create", "SELECT": "query"}.get(words[0], "other")


def _percent(kinds: Counter[Kind]) -> float:
    return round(100 * kinds["runs"] / max(1, kinds["runs"] + kinds["refused"]), 1)


def main() -> int:
    options = _parse()
    listed = msgspec.json.decode(LISTED.read_bytes(), type=list[Repository])
    wanted = [each for each in listed if fnmatch(each.repository, options.only)]
    found: dict[str, list[Judged]] = {}
    for each in wanted:
        found[each.repository] = all_ = list(judged(each, _texts(options.clones, each)))
        kinds = Counter(one.kind for one in all_)
        words = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        print(f"{each.repository}: {words}", flush=True)
        if options.list:
            _list(all_)
    whole = summary(found)
    print(
        f"{whole['runs']} of {whole['judged']} statements run ({whole['runs_percent']} %);"
        f" {whole['whole']} of {whole['with_judged_statements']} repositories run whole"
    )
    if options.report is not None:
        options.report.write_text(json.dumps(_result(whole), indent=1, ensure_ascii=False) + "\n")
    return 0


def _list(all_: Iterable[Judged]) -> None:
    for one in all_:
        if one.kind == "refused":
            text = " ".join(one.verdict.statement.split())
            print(f"  {one.path}:{one.verdict.line} {text[:100]}\n    {one.verdict.reason}")


def _texts(clones: Path, each: Repository) -> dict[str, str]:
    return {path: _text(clones, each, path) for paths in each.sessions for path in paths}


def _text(clones: Path, each: Repository, path: str) -> str:
    where = clones / each.repository.replace("/", "+")
    command = ["git", "-C", str(where), "show", f"{each.commit}:{path}"]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode:
        raise SystemExit(
            f"{path} of {each.repository} at {each.commit}: {made.stderr.decode().strip()}\n"
            f"git clone https://github.com/{each.repository} {where}"
        )
    return made.stdout.decode("utf-8-sig", "replace")


def _result(whole: dict[str, Any]) -> dict[str, Any]:
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "question": "How many statements of public repositories run, with AVRO read as JSON?",
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        **whole,
    }


def _parse() -> argparse.Namespace:
    known = argparse.ArgumentParser(prog="python -m tests.conformance.repositories")
    known.add_argument("--clones", type=Path, required=True)
    known.add_argument("--only", default="*", help="a glob over OWNER/NAME")
    known.add_argument("--list", action="store_true", help="each statement that is refused")
    known.add_argument("--report", type=Path)
    return known.parse_args()


if __name__ == "__main__":
    sys.exit(main())
