# A name is upper-cased unless it is quoted; the default key format is KAFKA.
CREATE STREAM s (id INT KEY, `Value` STRING) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
STREAM S: `ID` INTEGER KEY, `Value` STRING
topic here x 2, KAFKA → JSON

# PARTITIONS makes the topic where it is absent.
CREATE TABLE t (id INT PRIMARY KEY, v STRING) WITH (KAFKA_TOPIC='new', FORMAT='JSON', PARTITIONS=3, REPLICAS=1);
----
TABLE T: `ID` INTEGER KEY, `V` STRING
topic new x 3 (to be made), JSON → JSON

# … and must agree with it where it is not.
CREATE TABLE t (id INT PRIMARY KEY, v STRING) WITH (KAFKA_TOPIC='here', FORMAT='JSON', PARTITIONS=3);
----
! 40001 1:88 A Kafka topic with the name 'here' already exists, with different partition/replica configuration than required. KSQL expects 3 partitions (topic has 2).

CREATE STREAM s (id INT KEY, v STRING) WITH (KAFKA_TOPIC='absent', VALUE_FORMAT='JSON');
----
! 40001 1:46 Topic 'absent' does not exist. If you want to create a new topic for the stream/table please re-run the statement providing the required 'PARTITIONS' configuration in the WITH clause (and optionally 'REPLICAS'). For example: ... WITH (KAFKA_TOPIC='absent', PARTITIONS=4, ...)

# Key columns come first, wherever they were written.
CREATE STREAM s (v STRING, id INT KEY) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
STREAM S: `ID` INTEGER KEY, `V` STRING
topic here x 2, KAFKA → JSON

# A stream needs no key; its key format is NONE then.
CREATE STREAM s (v STRING) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
STREAM S: `V` STRING
topic here x 2, NONE → JSON

CREATE TABLE t (v STRING) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:14 Tables require a PRIMARY KEY. Please define the PRIMARY KEY.

CREATE TABLE t (id INT KEY, v STRING) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:17 Line: 1, Col: 17: Column `ID` is a 'KEY' column: please use 'PRIMARY KEY' for tables.

CREATE STREAM s (id INT PRIMARY KEY, v STRING) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:18 Line: 1, Col: 18: Column `ID` is a 'PRIMARY KEY' column: please use 'KEY' for streams.

CREATE STREAM s (id INT KEY, at BIGINT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', TIMESTAMP='at');
----
STREAM S: `ID` INTEGER KEY, `AT` BIGINT
topic here x 2, KAFKA → JSON
time from AT

CREATE STREAM s (id INT KEY, at STRING) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', TIMESTAMP='at', TIMESTAMP_FORMAT='yyyy-MM-dd');
----
STREAM S: `ID` INTEGER KEY, `AT` STRING
topic here x 2, KAFKA → JSON
time from AT yyyy-MM-dd

CREATE STREAM s (id INT KEY, at STRING) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', TIMESTAMP='at');
----
! 40001 1:88 A String timestamp field has been specified without also specifying the timestamp_format: AT is a STRING.

CREATE STREAM s (id INT KEY, at BIGINT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', TIMESTAMP='ta');
----
! 40001 1:88 The TIMESTAMP column set in the WITH clause does not exist in the schema: 'TA'

CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', WRAP_SINGLE_VALUE=false);
----
STREAM S: `ID` INTEGER KEY, `V` INTEGER
topic here x 2, KAFKA → JSON
single value not wrapped

CREATE STREAM s (id INT KEY, v INT, w INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', WRAP_SINGLE_VALUE=false);
----
! 40001 1:91 'WRAP_SINGLE_VALUE' is only valid for single-field value schemas

CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='DELIMITED', WRAP_SINGLE_VALUE=true);
----
! 40001 1:89 Format 'DELIMITED' does not support 'WRAP_SINGLE_VALUE' set to 'true'.

CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', KAFKA_TOPIK='x');
----
! 40001 1:84 Invalid config variable(s) in the WITH clause: KAFKA_TOPIK
!   Did you mean KAFKA_TOPIC?

CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='here');
----
! 40001 1:15 Statement is missing the 'VALUE_FORMAT' property from the WITH clause. Either provide one or set a default via the 'ksql.persistence.default.format.value' config.

CREATE STREAM s (id INT KEY, v INT) WITH (VALUE_FORMAT='JSON');
----
! 40001 1:15 Missing required property "KAFKA_TOPIC" which has no default value.

CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='AVRO');
----
! 42801 1:15 Cannot create topic 'here' with format AVRO without configuring 'ksql.schema.registry.url'

CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='here', KEY_FORMAT='JSON_SR', VALUE_FORMAT='JSON');
----
! 42801 1:15 Cannot create topic 'here' with format JSON_SR without configuring 'ksql.schema.registry.url'

CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSNO');
----
! 40001 1:63 Unknown format: JSNO
!   Did you mean JSON?

CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='here', FORMAT='JSON', KEY_FORMAT='KAFKA');
----
! 40001 1:78 Cannot supply both 'KEY_FORMAT' and 'FORMAT' properties, as 'FORMAT' sets both key and value formats.

CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', PARTITIONS='many');
----
! 40001 1:95 Invalid config variable in the WITH clause: PARTITIONS must be of type INTEGER, got 'many'

CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', PARTITIONS=0);
----
! 40001 1:84 Invalid number of partitions in WITH clause: 0

CREATE STREAM s (id INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='DELIMITED', VALUE_DELIMITER='ab');
----
! 40001 1:89 Invalid delimiter value: 'ab'. Delimiter must be a single character or TAB,SPACE.

CREATE STREAM s (a INT KEY, b INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:15 Key format does not support schema.
!   format: KAFKA
!   schema: Persistence{columns=[`A` INTEGER KEY, `B` INTEGER KEY], features=[]}
!   reason: The 'KAFKA' format only supports a single field. Got: [`A` INTEGER KEY, `B` INTEGER KEY]

CREATE STREAM s (a BOOLEAN KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:15 Key format does not support schema.
!   format: KAFKA
!   schema: Persistence{columns=[`A` BOOLEAN KEY], features=[]}
!   reason: The 'KAFKA' format does not support type 'BOOLEAN'

CREATE STREAM s (a INT KEY, v ARRAY<INT>) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='DELIMITED');
----
! 40001 1:15 Value format does not support schema.
!   format: DELIMITED
!   schema: Persistence{columns=[`V` ARRAY<INTEGER>], features=[]}
!   reason: The 'DELIMITED' format does not support type 'ARRAY', column: `V`

CREATE STREAM s (a INT KEY, v MAP<INT, INT>) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:15 Value format does not support schema.
!   format: JSON
!   schema: Persistence{columns=[`V` MAP<INTEGER, INTEGER>], features=[]}
!   reason: JSON only supports MAP types with STRING keys

CREATE STREAM s (a MAP<STRING, INT> KEY, v INT) WITH (KAFKA_TOPIC='here', FORMAT='JSON');
----
! 40001 1:15 Map keys, including types that contain maps, are not supported as they may lead to unexpected behavior due to inconsistent serialization. Key column name: `A`. Column type: MAP<STRING, INTEGER>. See https://github.com/confluentinc/ksql/issues/6621 for more.

CREATE STREAM s (a INT KEY, v INT, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:15 Duplicate column names: `V`

CREATE STREAM s (a INT KEY, rowtime BIGINT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:29 'ROWTIME' is a reserved column name. You cannot use it as a name for a column.

# One of our own columns in Spark has this name.
CREATE STREAM s (a INT KEY, __order BIGINT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:29 '__ORDER' is a name that Standpipe itself uses. Use another, or keep the case of the field: `__order`.

CREATE STREAM s (a INT KEY, `x${y}` BIGINT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:29 'x${y}': names that hold ${ are reserved.

# As older releases spelled it.
CREATE TABLE t (id INT, v STRING) WITH (KEY='id', KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:41 Invalid config variable(s) in the WITH clause: KEY
!   Mark the column instead: KEY in a stream, PRIMARY KEY in a table.

CREATE STREAM s (a INT KEY, v LONG) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:29 Cannot resolve unknown type: LONG
!   Did you mean BIGINT?

CREATE STREAM s (a INT KEY, v STRNG) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:29 Cannot resolve unknown type: STRNG
!   Did you mean STRING?

CREATE STREAM s (a INT KEY, v DECIMAL(39, 1)) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:29 DECIMAL precision must be <= 38: DECIMAL(39,1)

CREATE STREAM flights (a INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:15 Cannot add stream 'FLIGHTS': A stream with the same name already exists

CREATE OR REPLACE STREAM flights (a INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
STREAM FLIGHTS: `A` INTEGER KEY, `V` INTEGER
topic here x 2, KAFKA → JSON

CREATE STREAM IF NOT EXISTS flights (a INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
STREAM FLIGHTS: `A` INTEGER KEY, `V` INTEGER
topic here x 2, KAFKA → JSON

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
TABLE T: `A` INTEGER KEY, `V` INTEGER
topic here x 2, KAFKA → JSON
CST_T_7 reads here as T_7__IN0, watermark None
SELECT `A` AS `A`, `V` AS `V`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `T_7__IN0`

CREATE STREAM s (a INT KEY, h BYTES HEADER('k')) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
STREAM S: `A` INTEGER KEY, `H` BYTES
topic here x 2, KAFKA → JSON

CREATE STREAM s (a INT KEY, b INT KEY, v INT) WITH (KAFKA_TOPIC='here', FORMAT='DELIMITED', KEY_DELIMITER='SPACE');
----
STREAM S: `A` INTEGER KEY, `B` INTEGER KEY, `V` INTEGER
topic here x 2, DELIMITED → DELIMITED

CREATE STREAM s (a INT KEY, v INT) WITH (KAFKA_TOPIC='here', FORMAT='DELIMITED', KEY_DELIMITER='ab');
----
! 40001 1:82 Invalid delimiter value: 'ab'. Delimiter must be a single character or TAB,SPACE.

# PARTITIONS makes the topic that a source table reads, as for every CREATE over a topic.
CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT) WITH (KAFKA_TOPIC='nowhere', VALUE_FORMAT='JSON', PARTITIONS=2);
----
TABLE T: `A` INTEGER KEY, `V` INTEGER
topic nowhere x 2 (to be made), KAFKA → JSON
CST_T_7 reads nowhere as T_7__IN0, watermark None
SELECT `A` AS `A`, `V` AS `V`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `T_7__IN0`

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', PARTITIONS=2);
----
TABLE T: `A` INTEGER KEY, `V` INTEGER
topic here x 2, KAFKA → JSON
CST_T_7 reads here as T_7__IN0, watermark None
SELECT `A` AS `A`, `V` AS `V`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `T_7__IN0`

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', PARTITIONS=3);
----
! 40001 1:97 A Kafka topic with the name 'here' already exists, with different partition/replica configuration than required. KSQL expects 3 partitions (topic has 2).

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT) WITH (KAFKA_TOPIC='nowhere', VALUE_FORMAT='JSON');
----
! 40001 1:56 Topic 'nowhere' does not exist. If you want to create a new topic for the stream/table please re-run the statement providing the required 'PARTITIONS' configuration in the WITH clause (and optionally 'REPLICAS'). For example: ... WITH (KAFKA_TOPIC='nowhere', PARTITIONS=4, ...)

CREATE SOURCE STREAM t (a INT KEY, v INT) WITH (KAFKA_TOPIC='nowhere', VALUE_FORMAT='JSON', PARTITIONS=2);
----
STREAM T: `A` INTEGER KEY, `V` INTEGER
topic nowhere x 2 (to be made), KAFKA → JSON

CREATE STREAM s (a INT, h ARRAY<STRUCT<key STRING, value BYTES>> HEADERS, g BYTES HEADER('k')) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:15 Schema already contains a HEADERS column.

# A bound in ms is for tables with replicas, of which the lag is known.
CREATE SOURCE TABLE t (a INT PRIMARY KEY, b INT) WITH (KAFKA_TOPIC='here', FORMAT='JSON', ACCEPTABLE_SOURCE_LAG_MS=1);
----
TABLE T: `A` INTEGER KEY, `B` INTEGER
topic here x 2, JSON → JSON
may be None ms behind, sources 1
CST_T_7 reads here as T_7__IN0, watermark None
SELECT `A` AS `A`, `B` AS `B`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `T_7__IN0`

CREATE TABLE t (a INT PRIMARY KEY, b INT) WITH (KAFKA_TOPIC='t', FORMAT='JSON', PARTITIONS=1, WRITER='EXTERNAL', ACCEPTABLE_SOURCE_LAG_MS=1);
----
! 40001 1:114 ACCEPTABLE_SOURCE_LAG_MS is not for tables with WRITER='EXTERNAL': their source lag is not known, so no read would be answered.

CREATE TABLE t (a INT PRIMARY KEY, b INT) WITH (KAFKA_TOPIC='t', FORMAT='JSON', PARTITIONS=1, WRITER='EXTERNAL', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR', WINDOW_RETENTION='59 MINUTES');
----
! 40001 1:160 WINDOW_RETENTION must not be less than WINDOW_SIZE.

CREATE TABLE t (a INT PRIMARY KEY, b INT) WITH (KAFKA_TOPIC='t', FORMAT='JSON', PARTITIONS=1, WRITER='EXTERNAL', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR', WINDOW_RETENTION='1 WEEK');
----
! 40001 1:160 Configuration WINDOW_RETENTION is invalid: Invalid duration: '1 WEEK'. Unknown time unit: 'WEEK'

CREATE TABLE t (a INT PRIMARY KEY, b INT) WITH (KAFKA_TOPIC='t', FORMAT='JSON', PARTITIONS=1, WRITER='EXTERNAL', WINDOW_RETENTION='1 HOUR');
----
! 40001 1:114 WINDOW_RETENTION needs a WINDOW_TYPE.

CREATE TABLE t (a INT PRIMARY KEY, b INT) WITH (KAFKA_TOPIC='t', FORMAT='JSON', PARTITIONS=1, WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR', WINDOW_RETENTION='1 HOUR');
----
! 40001 1:141 WINDOW_RETENTION is for tables with WRITER='EXTERNAL': of other topics, only their writers know how long windows matter.

CREATE TABLE t (a INT PRIMARY KEY, b INT) WITH (KAFKA_TOPIC='t', FORMAT='JSON', PARTITIONS=1, WRITER='EXTERNAL', WINDOW_TYPE='SESSION');
----
! 40001 1:95 A table of session windows with WRITER='EXTERNAL' is not supported yet.

CREATE TABLE t (a INT PRIMARY KEY, b INT) WITH (KAFKA_TOPIC='here', FORMAT='JSON', ACCEPTABLE_SOURCE_LAG_MS=1);
----
! 40001 1:84 ACCEPTABLE_SOURCE_LAG_MS is for tables with replicas, of CREATE TABLE … AS SELECT and CREATE SOURCE TABLE: T has none.

# Nodes follow the topic themselves: there is no query.
CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT');
----
TABLE T: `A` INTEGER KEY, `V` INTEGER, `AT` TIMESTAMP
topic here x 2, KAFKA → JSON
followed directly, as T_7, version -

# A version is a value column that holds whole numbers.
CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT', VERSION_COLUMN='at');
----
TABLE T: `A` INTEGER KEY, `V` INTEGER, `AT` TIMESTAMP
topic here x 2, KAFKA → JSON
followed directly, as T_7, version AT

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT', VERSION_COLUMN='a');
----
! 40001 1:127 The VERSION_COLUMN is not among the value columns: 'A'
!   Did you mean AT?

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v DOUBLE) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT', VERSION_COLUMN='v');
----
! 40001 1:116 The VERSION_COLUMN V must be of type INTEGER, BIGINT or TIMESTAMP, not DOUBLE.

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', VERSION_COLUMN='at');
----
! 40001 1:111 VERSION_COLUMN is for tables with APPLY='DIRECT'.

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='SPARK');
----
! 40001 1:111 APPLY must be 'DIRECT', got 'SPARK'.

# What nodes do not apply themselves is refused by name.
CREATE TABLE t (a INT PRIMARY KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT');
----
! 40001 1:90 APPLY='DIRECT' is for CREATE SOURCE TABLE only.

CREATE SOURCE STREAM t (a INT KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT');
----
! 40001 1:90 APPLY='DIRECT' is for CREATE SOURCE TABLE only.

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='here', FORMAT='JSON', APPLY='DIRECT');
----
! 40001 1:105 A table with APPLY='DIRECT' cannot have keys of format JSON, only KAFKA. Leave out APPLY: a query then copies the topic.

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='DELIMITED', APPLY='DIRECT');
----
! 40001 1:90 A table with APPLY='DIRECT' cannot have values of format DELIMITED, only JSON or KAFKA. Leave out APPLY: a query then copies the topic.

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT', TIMESTAMP='at');
----
! 40001 1:127 A table with APPLY='DIRECT' cannot have TIMESTAMP: ROWTIME is the time of the record. Leave TIMESTAMP out.

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT', RETENTION_MS=1);
----
! 40001 1:127 A table with APPLY='DIRECT' cannot have RETENTION_MS: rows stay until they are deleted. Configure the topic with Kafka's tools.

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT', WRITER='EXTERNAL');
----
! 40001 1:127 A table with APPLY='DIRECT' cannot have WRITER: the topic is written by any program. Leave WRITER out.

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='nowhere', VALUE_FORMAT='JSON', PARTITIONS=2, APPLY='DIRECT');
----
! 40001 1:21 Topic 'nowhere' does not exist. A table with APPLY='DIRECT' only reads what another program writes: create the topic first.

CREATE SOURCE TABLE t (a INT PRIMARY KEY, v INT, at TIMESTAMP) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT', WINDOW_TYPE='TUMBLING', WINDOW_SIZE='1 HOUR');
----
! 40001 1:111 A table with APPLY='DIRECT' over windowed keys is not supported yet.

CREATE SOURCE TABLE t (a INT PRIMARY KEY, h BYTES HEADER('k')) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT');
----
! 40001 1:111 A table with APPLY='DIRECT' cannot have HEADER columns. Leave out APPLY, or the columns.

CREATE OR REPLACE SOURCE TABLE t (a INT PRIMARY KEY, v INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON', APPLY='DIRECT');
----
! 40001 1:32 Cannot add table 'T': CREATE OR REPLACE is not supported on source tables.

CREATE STREAM s (a INT KEY, b INT, a STRING, b INT) WITH (KAFKA_TOPIC='here', VALUE_FORMAT='JSON');
----
! 40001 1:15 Duplicate column names: `A`, `B`
