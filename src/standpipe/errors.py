"""Every error that a person or a client can meet: HTTP status, code, text, what to do.

StandpipeError                         500  50000
├── BadRequest                         400  40000   malformed body, unknown property
├── StatementError                     400  40001   parse, analysis, planning: points at line:col
│   ├── SqlSyntaxError                        40001
│   └── UnknownName                         40001   carries the nearest name
├── QueryOnStatementEndpoint           400  40002   SELECT or PRINT sent to /ksql
├── TooManyPushQueries                 400  40003
├── Http2Only                          400  40004   /inserts-stream over HTTP/1.1
├── Unauthorized                       401  40100   internal route without the cluster's secret
├── NotFound                           404  40400
├── BodyTooLarge                       413  41300
├── AssertionRefused                   417  41700   what an ASSERT names was not there in time
├── TooManyRequests                    429  42900
├── ServerError                        500  50000
├── NodeLeaving                        503  50303
├── NotReady                           503  50305   replicas exist, none holds a whole batch yet
├── NoReplica                          503  50306   every replica was ruled out; verdicts say why
├── LogUnavailable                     503  50307   no leader of the quorum answers
├── KafkaUnavailable                   503  50308
└── SetupError                          -   E-…     start-up of a process; printed, exit status 1
    ├── JavaMissing                         E-JAVA-001
    ├── PortInUse                           E-PORT-001
    ├── BrokerUnreachable                   E-KAFKA-001
    ├── BrokerDied                          E-KAFKA-002
    ├── DataDirectoryRefused                E-DATA-001
    ├── FeatureLevelRefused                 E-FEATURE-001
    └── ConfigError                         E-CONFIG-001

`code // 100 == status` (ksqlDB's rule), and a test walks the registry. Source: ksqlDB's error
codes; KLIP-12 and the article of docs/sources.md for the texts of 503.
"""

from __future__ import annotations

from typing import ClassVar


class StandpipeError(Exception):
    """Base of all errors that cross a process boundary."""

    status: ClassVar[int] = 500
    code: ClassVar[int] = 50000
    #: seconds after which trying again makes sense; None: it will not get better by itself
    retry_after_s: ClassVar[int | None] = None

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def body(self) -> dict[str, object]:
        """The JSON body in ksqlDB's shape; our extras ride under `standpipe`."""
        shape: dict[str, object] = {
            "@type": "generic_error",
            "error_code": self.code,
            "message": self.message,
        }
        if self.details:
            shape["standpipe"] = self.details
        return shape


class BadRequest(StandpipeError):
    """The request cannot be read: not JSON, a missing field, an unknown property."""

    status = 400
    code = 40000


class StatementError(StandpipeError):
    """A statement cannot be parsed, analysed or planned. `line` and `column` are 1-based."""

    status = 400
    code = 40001

    def __init__(
        self,
        message: str,
        *,
        statement: str = "",
        line: int | None = None,
        column: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.statement = statement
        self.line = line
        self.column = column
        self.hint = hint

    def body(self) -> dict[str, object]:
        """ksqlDB's `statement_error`, with the position and the hint under `standpipe`."""
        shape: dict[str, object] = {
            "@type": "statement_error",
            "error_code": self.code,
            "message": self.message,
            "statementText": self.statement,
            "entities": [],
        }
        extras = {"line": self.line, "column": self.column, "hint": self.hint or None}
        present = {name: value for name, value in extras.items() if value is not None}
        if present:
            shape["standpipe"] = present
        return shape

    def pointed(self) -> str:
        """The message with the offending line and a caret under the column."""
        if self.line is None or self.column is None:
            return self.message
        lines = self.statement.splitlines()
        if not 1 <= self.line <= len(lines):
            return self.message
        hint = f"\n{self.hint}" if self.hint else ""
        return f"{self.message}\n  {lines[self.line - 1]}\n  {' ' * (self.column - 1)}^{hint}"


class SqlSyntaxError(StatementError):
    """The text is not in the grammar."""


class UnknownName(StatementError):
    """A stream, table, column or function that does not exist; `hint` names the nearest."""


class QueryOnStatementEndpoint(StatementError):
    """SELECT or PRINT was sent to /ksql; it belongs to /query or /query-stream."""

    code = 40002


class TooManyPushQueries(StandpipeError):
    """The node serves as many push queries as `ksql.max.push.queries` allows."""

    status = 400
    code = 40003


class Http2Only(StandpipeError):
    """The endpoint streams both ways at once, which takes HTTP/2."""

    status = 400
    code = 40004


class Unauthorized(StandpipeError):
    """An internal route was called without the cluster's secret."""

    status = 401
    code = 40100


class NotFound(StandpipeError):
    """No such path, command or query id."""

    status = 404
    code = 40400


class BodyTooLarge(StandpipeError):
    """The request body exceeds `standpipe.request.body.bytes.max`."""

    status = 413
    code = 41300

    def __init__(self, message: str, *, is_read: bool = False) -> None:
        super().__init__(message)
        #: to its end: there is nothing to read away before the answer may end
        self.is_read = is_read


class AssertionRefused(StandpipeError):
    """An ASSERT found something else than it names, until its timeout was over."""

    status = 417
    code = 41700


class TooManyRequests(StandpipeError):
    """The node is at a limit; the client should back off."""

    status = 429
    code = 42900
    retry_after_s = 1


class ServerError(StandpipeError):
    """A fault of ours: anything not foreseen. The log of the node has the traceback."""


class NodeLeaving(StandpipeError):
    """The node is about to stop and begins nothing that goes on; another node will."""

    status = 503
    code = 50303
    retry_after_s = 1


class NotReady(StandpipeError):
    """The table exists, but no replica of the partition holds a whole batch yet."""

    status = 503
    code = 50305
    retry_after_s = 1


class NoReplica(StandpipeError):
    """Every replica of a partition was ruled out; `verdicts` says why, one per replica."""

    status = 503
    code = 50306
    retry_after_s = 1


class LogUnavailable(StandpipeError):
    """No leader of the metadata quorum answers in time. Reads go on; statements wait."""

    status = 503
    code = 50307
    retry_after_s = 1


class KafkaUnavailable(StandpipeError):
    """Kafka does not answer. Reads go on; inserts and statements that make topics wait."""

    status = 503
    code = 50308
    retry_after_s = 1


class SetupError(StandpipeError):
    """A process cannot start. Printed without a traceback; `next_step` says what to do."""

    name: ClassVar[str] = "E-SETUP-001"

    def __init__(self, message: str, *, next_step: str) -> None:
        super().__init__(message)
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.name} {self.message}\n  Next: {self.next_step}"


class JavaMissing(SetupError):
    """No Java 17 or newer was found."""

    name = "E-JAVA-001"


class PortInUse(SetupError):
    """A port that was asked for by number is taken."""

    name = "E-PORT-001"


class BrokerUnreachable(SetupError):
    """No Kafka broker answers at the addresses given."""

    name = "E-KAFKA-001"


class BrokerDied(SetupError):
    """The embedded broker ended by itself; the tail of its log is in the message."""

    name = "E-KAFKA-002"


class DataDirectoryRefused(SetupError):
    """The data directory belongs to another node, cluster or version."""

    name = "E-DATA-001"


class FeatureLevelRefused(SetupError):
    """The cluster has a feature level that this program does not know: it must not take part."""

    name = "E-FEATURE-001"


class ConfigError(SetupError):
    """A key is unknown or its value is out of bounds; the nearest key is named."""

    name = "E-CONFIG-001"
