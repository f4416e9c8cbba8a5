SHOW STREAMS;
----
ShowPlan(what='STREAMS', extended=False)

LIST TABLES EXTENDED;
----
ShowPlan(what='TABLES', extended=True)

SHOW ALL TOPICS;
----
ShowPlan(what='TOPICS', extended=False)

SHOW LAG;
----
lag of all tables

LIST LAG by_tail;
----
lag of BY_TAIL

SHOW LAG by_tale;
----
! 40001 1:1 Could not find STREAM/TABLE 'BY_TALE' in the Metastore
!   Did you mean BY_TAIL?

# Neither has replicas.
SHOW LAG flights;
----
! 40001 1:1 FLIGHTS is a stream: it is read from its topic and has no replicas.

SHOW LAG planes;
----
! 40001 1:1 PLANES is a table that another program writes: it has no replicas. Tables of CREATE TABLE … AS SELECT and CREATE SOURCE TABLE have.

# The word is a name everywhere else.
CREATE STREAM lag (lag INT KEY, list INT) WITH (KAFKA_TOPIC='here', FORMAT='JSON');
----
STREAM LAG: `LAG` INTEGER KEY, `LIST` INTEGER
topic here x 2, JSON → JSON

SHOW FUNCTIONS;
----
ShowPlan(what='FUNCTIONS', extended=False)

SHOW TYPES;
----
ShowPlan(what='TYPES', extended=False)

DESCRIBE by_tail EXTENDED;
----
describe BY_TAIL extended=True

DESCRIBE by_tial;
----
! 40001 1:1 Could not find STREAM/TABLE 'BY_TIAL' in the Metastore
!   Did you mean BY_TAIL?

DROP TABLE by_tail;
----
DropPlan(name='BY_TAIL', kind='TABLE', exists=True, delete_topic=False)

DROP STREAM IF EXISTS nothing DELETE TOPIC;
----
DropPlan(name='NOTHING', kind='STREAM', exists=False, delete_topic=True)

DROP STREAM flight;
----
! 40001 1:1 Stream FLIGHT does not exist.
!   Did you mean FLIGHTS?

DROP STREAM by_tail;
----
! 40001 1:1 Incompatible data source type is table, but statement was DROP stream

TERMINATE ctas_by_tail_1;
----
TerminatePlan(query_id='CTAS_BY_TAIL_1')

TERMINATE ALL;
----
TerminatePlan(query_id=None)

PAUSE ctas_by_tail_1;
----
PausePlan(query_id='CTAS_BY_TAIL_1', state='PAUSED')

SET 'auto.offset.reset' = 'earliest';
----
SetPropertyPlan(name='auto.offset.reset', value='earliest')

UNSET 'auto.offset.reset';
----
SetPropertyPlan(name='auto.offset.reset', value=None)

EXPLAIN ctas_by_tail_1;
----
ExplainPlan(query_id='CTAS_BY_TAIL_1', subject=None)

DEFINE a = 'b';
----
DefinePlan(name='A', value='b')

CREATE TYPE address AS STRUCT<street STRING>;
----
CreateTypePlan(name='ADDRESS', definition='STRUCT<`STREET` STRING>', if_not_exists=False)

ALTER STREAM flights ADD COLUMN a INT;
----
STREAM FLIGHTS: `TAIL` STRING KEY, `CARRIER` STRING, `DELAY` DOUBLE, `SEATS` INTEGER, `MILES` BIGINT, `FARE` DECIMAL(6, 2), `DAY` DATE, `AT` TIMESTAMP, `TAGS` ARRAY<STRING>, `INFO` STRUCT<`X` INTEGER, `Y` STRING>, `A` INTEGER
topic flights x 4, KAFKA → JSON

# STRING is ksqlDB's own.
CREATE TYPE string AS INT;
----
! 40001 1:1 STRING is a type already.

CREATE TYPE IF NOT EXISTS address AS ARRAY<adress>;
----
! 40001 1:1 Cannot resolve unknown type: ADRESS

DROP TYPE IF EXISTS address;
----
DropTypePlan(name='ADDRESS', if_exists=True)

ALTER STREAM flights ADD COLUMN tail INT, ADD b INT;
----
! 40001 1:33 Cannot add column `TAIL` to schema. A column with the same name already exists.

ALTER TABLE flights ADD COLUMN a INT;
----
! 40001 1:1 Incompatible data source type is STREAM, but statement was ALTER TABLE

ALTER TABLE by_tail ADD COLUMN a INT;
----
! 40001 1:1 ALTER command is not supported for CREATE ... AS statements.

ALTER TABLE nowhere ADD COLUMN a INT;
----
! 40001 1:1 Source NOWHERE does not exist.

ALTER STREAM flights ADD COLUMN rowtime BIGINT;
----
! 40001 1:33 'ROWTIME' is a reserved column name. You cannot use it as a name for a column.

ALTER SYSTEM 'a' = 'b';
----
! 40001 1:1 ALTER SYSTEM is not supported yet.

PRINT 'flights' FROM BEGINNING LIMIT 3;
----
PrintPlan(topic='flights', from_beginning=True, interval=1, limit=3)

# A topic counts as it is written.
PRINT Flights INTERVAL 2;
----
PrintPlan(topic='Flights', from_beginning=False, interval=2, limit=None)

PRINT flights INTERVAL 0;
----
! 40001 1:1 INTERVAL must be greater than one, but was: 0

PRINT flights LIMIT -1;
----
! 40001 1:22 LIMIT must not be negative in push queries and PRINT.

ASSERT NOT EXISTS TOPIC 'flights' TIMEOUT 5 SECONDS;
----
AssertTopicPlan(topic='flights', exists=False, partitions=None, replicas=None, timeout_ms=5000)

ASSERT TOPIC flights WITH (PARTITIONS=3, RETENTION_MS=1);
----
! 40001 1:42 Cannot assert unknown topic property: RETENTION_MS

ASSERT TOPIC flights WITH (PARTITIONS=3);
----
AssertTopicPlan(topic='FLIGHTS', exists=True, partitions=3, replicas=None, timeout_ms=1000)

ASSERT TOPIC flights;
----
AssertTopicPlan(topic='FLIGHTS', exists=True, partitions=None, replicas=None, timeout_ms=1000)

INSERT INTO flights SELECT * FROM flights;
----
! 40001 1:35 Cannot insert into FLIGHTS: the query reads it, and would never end.

DESCRIBE FUNCTION len;
----
DescribeFunctionPlan(name='LEN')

SHOW TABLE;
----
! 40001 1:6 line 1:6: Syntax Error
!   Statement: SHOW TABLE;
!   Syntax error at or near 'TABLE' at line 1:6

EXPLAIN ROUTE SELECT * FROM by_tail WHERE tail = 'N1';
----
route of BY_TAIL [('N1',)]

EXPLAIN ROUTE SELECT * FROM flights;
----
! 40001 1:29 FLIGHTS is a stream: it is read from its topic and has no replicas.

EXPLAIN route;
----
ExplainPlan(query_id='ROUTE', subject=None)

EXPLAIN ASSIGNMENT;
----
assignment

# What Standpipe does not have.
CREATE SINK CONNECTOR IF NOT EXISTS c WITH ('connector.class'='x', 'tasks.max'='1');
----
! 40001 1:1 CREATE CONNECTOR is not supported: Standpipe has no connectors. Run Kafka Connect beside it, and declare its topics as streams and tables.

DROP CONNECTOR IF EXISTS c;
----
! 40001 1:1 DROP CONNECTOR is not supported: Standpipe has no connectors. Run Kafka Connect beside it, and declare its topics as streams and tables.

DESCRIBE CONNECTOR c;
----
! 40001 1:1 DESCRIBE CONNECTOR is not supported: Standpipe has no connectors. Run Kafka Connect beside it, and declare its topics as streams and tables.

SHOW CONNECTOR PLUGINS;
----
! 40001 1:1 SHOW CONNECTOR PLUGINS is not supported: Standpipe has no connectors. Run Kafka Connect beside it, and declare its topics as streams and tables.

ASSERT NOT EXISTS SCHEMA SUBJECT 'flights-value' ID 3 TIMEOUT 5 SECONDS;
----
! 40001 1:1 ASSERT SCHEMA is not supported: ask the schema registry itself.

# The words are names everywhere else.
CREATE STREAM sink (connector INT, schema INT, subject STRING, id INT) WITH (KAFKA_TOPIC='here', FORMAT='JSON');
----
STREAM SINK: `CONNECTOR` INTEGER, `SCHEMA` INTEGER, `SUBJECT` STRING, `ID` INTEGER
topic here x 2, JSON → JSON

DESCRIBE connectors;
----
! 40001 1:1 Could not find STREAM/TABLE 'CONNECTORS' in the Metastore
