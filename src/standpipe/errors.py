"""Every error that a person or a client can meet: HTTP status, code, and what to do.

The whole tree, those of other modules too; a test keeps it complete. `code // 100 == status` is
ksqlDB's rule; a test checks it. An `E-…` ends a process at its start, with exit status 1.

StandpipeError                         50000   base; 500
├── BadRequest                         40000   malformed body, unknown property
│   ├── FeatureViewRefused             40000   feast.views: a feature view and its table
│   ├── UnfitKey                       40000   data.encoding.kafka_keys
│   └── UnfitParameter                 40000   client.core.literals: a value without a literal
├── StatementError                     40001   parse, analysis, planning: points at line:column
│   ├── SqlSyntaxError                 40001
│   ├── UnknownName                    40001   names the nearest one
│   ├── QueryOnStatementEndpoint       40002   SELECT or PRINT sent to /ksql
│   ├── SchemaRegistryMissing          42801   sql.schemas.registry
│   └── NotComputable                  40005   data.query.scan: an expression, for a row it read
├── TooManyPushQueries                 40003
├── Http2Only                          40004   /inserts-stream over HTTP/1.1
├── TokenRefused                       40006   a session token that no answer can cover
├── Unauthorized                       40100   port of nodes, without a proof of the secret
├── ForeignPage                        40300   a web page of another origin sent it
├── NotFound                           40400
├── NoArrow                            40600   only Arrow is accepted, and pyarrow is missing
├── BodyTooLarge                       41300
├── UnsupportedMediaType               41500   the body is not declared as JSON
├── AssertionRefused                   41700   ASSERT: not true until its timeout
├── UnknownHost                        42100   Host is no name of this node
├── TooManyRequests                    42900
│   └── TextRefused                    42901   it stopped a worker a while ago
├── ServerError                        50000   an internal error; the node's log has the traceback
│   ├── DamagedRow                     50000   data.encoding.stored_rows
│   ├── DiskFailed                     50000   adapters.raft.log_file
│   ├── InvalidStateStore              50000   node.worker.inspect.kip535
│   ├── PeerSilent                     50000   adapters.http.internal
│   ├── PeerUnreachable                50000   adapters.http.internal
│   ├── PlacementFailed                50000   node.controller.planner
│   ├── QuorumHalted                   50000   node.controller.raft_driver
│   ├── RecordsLost                    50000   adapters.kafka.tail
│   ├── UnknownCommand                 50000   control.metadata.commands
│   ├── Unreadable                     50000   control.raft.codec
│   └── UnsafePath                     50000   adapters.files.named_paths
├── ServerRefused                      50000   client.core.answers: a node's error
├── ServeEnded                         50000   spark.errors: a served query has ended
├── LogBehind                          50301   node.worker.statements.execute
├── NodeLeaving                        50303
├── NotReady                           50305   replicas exist, none holds a whole batch yet
├── NoReplica                          50306   every replica was ruled out; `verdicts` says why
├── LogUnavailable                     50307   no leader of the quorum answers
├── KafkaUnavailable                   50308
│   ├── KafkaAccessDenied              40301   adapters.kafka.refusals
│   └── TopicRefused                   50308   adapters.kafka.admin
├── NodesUnreachable                   50309   client.core.attempts: at a client
├── AnswerLost                         50310   client.core.attempts: at a client
├── NoPipeline                         50311   nothing runs Spark for a push query
├── OutcomeUnknown                     50312   a statement may be logged, and nobody says so
├── HeavyWorkerEnded                   50313   before its answer was complete
├── NodeExhausted                      50314   node.worker.responses: no descriptor or memory left
├── SchemaRegistryUnavailable          50315   sql.schemas.registry
└── SetupError                         E-SETUP-001     start-up; printed with the next step
    ├── JavaMissing                    E-JAVA-001
    ├── JarsMissing                    E-JAVA-002      local.cluster.jvm
    ├── PortInUse                      E-PORT-001
    ├── BrokerUnreachable              E-KAFKA-001
    ├── BrokerDied                     E-KAFKA-002
    ├── DataDirectoryRefused           E-DATA-001
    ├── FeatureLevelRefused            E-FEATURE-001
    ├── QuorumRefused                  E-QUORUM-001    local.client.internal_client
    ├── PipelineRefused                E-PIPELINE-001  pipeline.run.control_client
    ├── ServeRefused                   E-SERVE-001     spark.errors
    ├── ReadRefused                    E-READ-001      spark_source.options
    └── ConfigError                    E-CONFIG-001

Sources: ksqlDB's error codes (Errors.java); KLIP-12 and the article of docs/sources.md (503s).
"""

from __future__ import annotations

from typing import ClassVar


class StandpipeError(Exception):
    """Base of all errors that cross a process boundary."""

    status: ClassVar[int] = 500
    code: ClassVar[int] = 50000
    #: seconds after which a retry makes sense (`Retry-After`); None: a retry does not help
    retry_after_s: ClassVar[int | None] = None

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def body(self) -> dict[str, object]:
        """The JSON body in ksqlDB's shape. Fields that ksqlDB does not have are in `standpipe`."""
        shape: dict[str, object] = {
            "@type": "generic_error",
            "error_code": self.code,
            "message": self.message,
        }
        if self.details:
            shape["standpipe"] = self.details
        return shape


class BadRequest(StandpipeError):
    """The request cannot be read: not JSON, a field is missing, or a property is unknown."""

    status = 400
    code = 40000


class StatementError(StandpipeError):
    """A statement cannot be parsed, analysed or planned. `line` and `column` start at 1."""

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
        if present := {name: value for name, value in extras.items() if value is not None}:
            shape["standpipe"] = present
        return shape

    def pointed(self) -> str:
        """The message, the offending line, and a caret under the column."""
        if self.line is None or self.column is None:
            return self.message
        lines = self.statement.splitlines()
        if not 1 <= self.line <= len(lines):
            return self.message
        hint = f"\n{self.hint}" if self.hint else ""
        return f"{self.message}\n  {lines[self.line - 1]}\n  {' ' * (self.column - 1)}^{hint}"


class SqlSyntaxError(StatementError):
    """The text is not a statement of the grammar."""


class UnknownName(StatementError):
    """A stream, table, column or function does not exist; `hint` names the nearest one."""


class QueryOnStatementEndpoint(StatementError):
    """SELECT or PRINT was sent to /ksql. Send it to /query or /query-stream."""

    code = 40002


class NotComputable(StatementError):
    """An expression of the query has no value for a row, or its text becomes too long."""

    code = 40005


class TooManyPushQueries(StandpipeError):
    """The node serves as many push queries as `ksql.max.push.queries` allows. Try another node."""

    status = 400
    code = 40003


class Http2Only(StandpipeError):
    """The endpoint streams in both directions at once, which needs HTTP/2."""

    status = 400
    code = 40004


class TokenRefused(StandpipeError):
    """A session token cannot be read, or is of another cluster, of a table, topic or changes that
    are gone, or ahead of all that was committed or written. Begin a new session: an empty token."""

    status = 400
    code = 40006


class Unauthorized(StandpipeError):
    """A port between nodes was called by a process that had not proved that it knows the secret."""

    status = 401
    code = 40100


class ForeignPage(StandpipeError):
    """A web page of another origin sent the request. See `standpipe.http.origins.allowed`."""

    status = 403
    code = 40300


class NotFound(StandpipeError):
    """There is no such path, command or query id."""

    status = 404
    code = 40400


class NoArrow(StandpipeError):
    """The client accepts only Arrow, and pyarrow is not installed with the node. Accept
    `application/json`, or install `standpipe[pandas]` there."""

    status = 406
    code = 40600


class BodyTooLarge(StandpipeError):
    """The request body exceeds `standpipe.request.body.bytes.max`."""

    status = 413
    code = 41300

    def __init__(self, message: str, *, is_read: bool = False) -> None:
        super().__init__(message)
        #: whether the body was read to its end, so that the next request follows directly
        self.is_read = is_read


class UnsupportedMediaType(StandpipeError):
    """The body is not declared as JSON: add `Content-Type: application/json`."""

    status = 415
    code = 41500


class AssertionRefused(StandpipeError):
    """What an ASSERT names did not become true within its timeout."""

    status = 417
    code = 41700


class UnknownHost(StandpipeError):
    """The request is for a host that is no name of the node. See `standpipe.http.hosts.allowed`."""

    status = 421
    code = 42100


class TooManyRequests(StandpipeError):
    """The node is at a limit. Back off, then try again."""

    status = 429
    code = 42900
    retry_after_s = 1


class TextRefused(TooManyRequests):
    """A worker of the node stopped turning while it executed this text. Simplify the query: the
    same text is refused for `standpipe.worker.refused.text.ms`."""

    code = 42901
    retry_after_s = 60


class ServerError(StandpipeError):
    """An internal error. The log of the node has the traceback."""


class NodeLeaving(StandpipeError):
    """The node is about to stop and accepts no long-running request. Ask another node."""

    status = 503
    code = 50303
    retry_after_s = 1


class NotReady(StandpipeError):
    """The table exists, but no replica of the partition holds a whole batch yet."""

    status = 503
    code = 50305
    retry_after_s = 1


class NoReplica(StandpipeError):
    """Every replica of a partition was ruled out; `verdicts` gives a reason for each of them."""

    status = 503
    code = 50306
    retry_after_s = 1


class LogUnavailable(StandpipeError):
    """No leader of the metadata quorum answered in time. Reads continue; statements wait."""

    status = 503
    code = 50307
    retry_after_s = 1


class KafkaUnavailable(StandpipeError):
    """Kafka does not answer. Reads continue; inserts and statements that create topics wait."""

    status = 503
    code = 50308
    retry_after_s = 1


class NoPipeline(StandpipeError):
    """A push query needs Spark, and no shared pipeline is registered. Start one: `standpipe
    pipeline`. It registers once its Spark is up."""

    status = 503
    code = 50311
    retry_after_s = 5


class OutcomeUnknown(StandpipeError):
    """A statement may have been executed: no answer came in time, it came too late, or the worker
    that carried it out has ended. Look (`SHOW`, `DESCRIBE`); if it was not, send it again."""

    status = 503
    code = 50312


class HeavyWorkerEnded(StandpipeError):
    """The worker of the answer has ended, for its memory or another request's sake. Ask again."""

    status = 503
    code = 50313
    retry_after_s = 1


class SetupError(StandpipeError):
    """A process cannot start. It prints the error and `next_step`, without a traceback."""

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
    """A port that was given by number is in use."""

    name = "E-PORT-001"


class BrokerUnreachable(SetupError):
    """No Kafka broker answers at the given addresses."""

    name = "E-KAFKA-001"


class BrokerDied(SetupError):
    """The embedded broker ended unexpectedly; the message has the end of its log."""

    name = "E-KAFKA-002"


class DataDirectoryRefused(SetupError):
    """The data directory belongs to another node, cluster or version."""

    name = "E-DATA-001"


class FeatureLevelRefused(SetupError):
    """The cluster has a feature level that this program does not know. Upgrade the program."""

    name = "E-FEATURE-001"


class ConfigError(SetupError):
    """A key is unknown (the nearest one is named), or its value is out of bounds."""

    name = "E-CONFIG-001"
