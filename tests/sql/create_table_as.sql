# Formats and partitions come from the source; the topic has the table's name.
CREATE TABLE t AS SELECT tail, COUNT(*) AS n FROM flights GROUP BY tail;
----
TABLE T: `TAIL` STRING KEY, `N` BIGINT
topic T x 4, KAFKA → JSON
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `TAIL`, cast(count(1) AS BIGINT) AS `N`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `TAIL` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

CREATE TABLE t WITH (KAFKA_TOPIC='x', VALUE_FORMAT='DELIMITED', PARTITIONS=9) AS SELECT tail, COUNT(*) AS n FROM flights GROUP BY tail EMIT CHANGES;
----
TABLE T: `TAIL` STRING KEY, `N` BIGINT
topic x x 9, KAFKA → DELIMITED
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `TAIL`, cast(count(1) AS BIGINT) AS `N`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `TAIL` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

# A quoted name becomes an id that files and topics can hold.
CREATE TABLE `my table` AS SELECT tail, COUNT(*) AS n FROM flights GROUP BY tail;
----
! 40001 1:14 Invalid topic name: 'my table'. Kafka takes up to 249 letters, digits, '.', '_' and '-'; name another with KAFKA_TOPIC.

# HAVING decides which rows are tombstones.
CREATE TABLE t AS SELECT tail, SUM(seats) AS s FROM flights f WHERE f.delay > 5 GROUP BY f.tail HAVING SUM(seats) > 10;
----
TABLE T: `TAIL` STRING KEY, `S` INTEGER
topic T x 4, KAFKA → JSON
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `TAIL`, cast(coalesce(sum(`SEATS`), 0) AS INT) AS `S`, max(`ROWTIME`) AS `__ROWTIME`, coalesce(coalesce(cast(coalesce(sum(`SEATS`), 0) AS INT) > (10), false), false) AS `__LIVE` FROM (SELECT *, `TAIL` AS `__KEY_0` FROM `T_7__IN0` WHERE coalesce(`DELAY` > (5.0D), false)) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

# Default grace: 24 hours less the size.
CREATE TABLE t AS SELECT carrier, COUNT(*) AS n FROM flights WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY carrier;
----
TABLE T: `CARRIER` STRING KEY, `N` BIGINT
topic T x 4, KAFKA → JSON
TUMBLING 3600000 grace 82800000 keep 86400000
CTAS_T_7 reads flights as T_7__IN0, watermark 82800000
SELECT `__KEY_0` AS `CARRIER`, unix_millis(`__W`.start) AS `WINDOWSTART`, unix_millis(`__W`.end) AS `WINDOWEND`, cast(count(1) AS BIGINT) AS `N`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, window(`__TS`, '3600000 milliseconds') AS `__W` FROM (SELECT * FROM (SELECT *, standpipe_stream_time(`ROWPARTITION`, `ROWOFFSET`, `ROWTIME`) AS `__T` FROM (SELECT *, `CARRIER` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL) WHERE `ROWTIME` - pmod(`ROWTIME`, 3600000L) + 3600000L + 82800000L > `__T`)) GROUP BY `__W`, `__KEY_0`

CREATE TABLE t AS SELECT carrier, COUNT(*) AS n FROM flights WINDOW TUMBLING (SIZE 2 DAYS, RETENTION 9 DAYS, GRACE PERIOD 1 MINUTE) GROUP BY carrier;
----
TABLE T: `CARRIER` STRING KEY, `N` BIGINT
topic T x 4, KAFKA → JSON
TUMBLING 172800000 grace 60000 keep 777600000
CTAS_T_7 reads flights as T_7__IN0, watermark 60000
SELECT `__KEY_0` AS `CARRIER`, unix_millis(`__W`.start) AS `WINDOWSTART`, unix_millis(`__W`.end) AS `WINDOWEND`, cast(count(1) AS BIGINT) AS `N`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, window(`__TS`, '172800000 milliseconds') AS `__W` FROM (SELECT * FROM (SELECT *, standpipe_stream_time(`ROWPARTITION`, `ROWOFFSET`, `ROWTIME`) AS `__T` FROM (SELECT *, `CARRIER` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL) WHERE `ROWTIME` - pmod(`ROWTIME`, 172800000L) + 172800000L + 60000L > `__T`)) GROUP BY `__W`, `__KEY_0`

CREATE TABLE t AS SELECT carrier, COUNT(*) AS n FROM flights WINDOW TUMBLING (SIZE 2 DAYS, RETENTION 1 DAY) GROUP BY carrier;
----
! 40001 1:62 The retention period of the window must be no smaller than its size plus the grace period. Got size=[172800000], grace=[0], retention=[86400000] (ms).

CREATE TABLE t AS SELECT carrier, WINDOWSTART AS ws, WINDOWEND - WINDOWSTART AS long, COUNT(*) FROM flights WINDOW TUMBLING (SIZE 2 DAYS) GROUP BY carrier;
----
TABLE T: `CARRIER` STRING KEY, `WS` BIGINT, `LONG` BIGINT, `KSQL_COL_0` BIGINT
topic T x 4, KAFKA → JSON
TUMBLING 172800000 grace 0 keep 172800000
CTAS_T_7 reads flights as T_7__IN0, watermark 0
SELECT `__KEY_0` AS `CARRIER`, unix_millis(`__W`.start) AS `WINDOWSTART`, unix_millis(`__W`.end) AS `WINDOWEND`, unix_millis(`__W`.start) AS `WS`, (unix_millis(`__W`.end) - unix_millis(`__W`.start)) AS `LONG`, cast(count(1) AS BIGINT) AS `KSQL_COL_0`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, window(`__TS`, '172800000 milliseconds') AS `__W` FROM (SELECT * FROM (SELECT *, standpipe_stream_time(`ROWPARTITION`, `ROWOFFSET`, `ROWTIME`) AS `__T` FROM (SELECT *, `CARRIER` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL) WHERE `ROWTIME` - pmod(`ROWTIME`, 172800000L) + 172800000L + 0L > `__T`)) GROUP BY `__W`, `__KEY_0`

CREATE TABLE t AS SELECT carrier, WINDOWSTART, COUNT(*) FROM flights WINDOW TUMBLING (SIZE 2 DAYS) GROUP BY carrier;
----
! 40001 1:35 Reserved column name in select: `WINDOWSTART`. Please remove or alias the column.

CREATE TABLE t AS SELECT carrier, MAX(WINDOWSTART) AS m FROM flights WINDOW TUMBLING (SIZE 2 DAYS) GROUP BY carrier;
----
! 40001 1:39 Window bounds column WINDOWSTART can only be used in the SELECT clause of windowed aggregations and can not be passed to aggregate functions.

CREATE TABLE t AS SELECT carrier, WINDOWSTART AS ws, COUNT(*) FROM flights GROUP BY carrier;
----
! 40001 1:35 Line: 1, Col: 35: SELECT column 'WINDOWSTART' cannot be resolved.

# Key columns are the grouping expressions, in their order, under their names in the list.
CREATE TABLE t WITH (KEY_FORMAT='JSON') AS SELECT COUNT(*), seats + 1, carrier AS c, (seats + 1) * 2, AS_VALUE(carrier) AS copy FROM flights GROUP BY carrier, seats + 1;
----
TABLE T: `C` STRING KEY, `KSQL_COL_1` INTEGER KEY, `KSQL_COL_0` BIGINT, `KSQL_COL_2` INTEGER, `COPY` STRING
topic T x 4, JSON → JSON
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `C`, `__KEY_1` AS `KSQL_COL_1`, cast(count(1) AS BIGINT) AS `KSQL_COL_0`, (`__KEY_1` * (2)) AS `KSQL_COL_2`, `__KEY_0` AS `COPY`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `CARRIER` AS `__KEY_0`, (`SEATS` + (1)) AS `__KEY_1` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL AND `__KEY_1` IS NOT NULL GROUP BY `__KEY_0`, `__KEY_1`

CREATE TABLE t AS SELECT carrier, seats, COUNT(*) FROM flights GROUP BY carrier, seats;
----
! 40001 1:14 Key format does not support schema.
!   format: KAFKA
!   schema: Persistence{columns=[`CARRIER` STRING KEY, `SEATS` INTEGER KEY], features=[]}
!   reason: The 'KAFKA' format only supports a single field. Got: [`CARRIER` STRING KEY, `SEATS` INTEGER KEY]
!   Statement: CREATE TABLE T AS SELECT
!     FLIGHTS.CARRIER CARRIER,
!     FLIGHTS.SEATS SEATS,
!     COUNT(*) KSQL_COL_0
!   FROM FLIGHTS FLIGHTS
!   GROUP BY FLIGHTS.CARRIER, FLIGHTS.SEATS
!   EMIT CHANGES

CREATE TABLE t AS SELECT fare, COUNT(*) FROM flights GROUP BY fare;
----
! 40001 1:14 Key format does not support schema.
!   format: KAFKA
!   schema: Persistence{columns=[`FARE` DECIMAL(6, 2) KEY], features=[]}
!   reason: The 'KAFKA' format does not support type 'DECIMAL'
!   Statement: CREATE TABLE T AS SELECT
!     FLIGHTS.FARE FARE,
!     COUNT(*) KSQL_COL_0
!   FROM FLIGHTS FLIGHTS
!   GROUP BY FLIGHTS.FARE
!   EMIT CHANGES

CREATE TABLE t AS SELECT COUNT(*) FROM flights GROUP BY carrier;
----
! 40001 1:19 Key missing from projection (ie, SELECT).
!   The query used to build `T` must include the grouping expression CARRIER in its projection (eg, SELECT CARRIER...).

CREATE TABLE t WITH (KEY_FORMAT='JSON') AS SELECT carrier, COUNT(*) FROM flights GROUP BY carrier, seats, tail;
----
! 40001 1:44 Keys missing from projection (ie, SELECT).
!   The query used to build `T` must include the grouping expressions SEATS and TAIL in its projection (eg, SELECT SEATS, TAIL...).

CREATE TABLE t AS SELECT carrier, carrier AS again, COUNT(*) FROM flights GROUP BY carrier;
----
! 40001 1:19 The projection contains a key column more than once: `CARRIER` and `AGAIN`.
!   Each key column must only be in the projection once. If you intended to copy the key into the value, then consider using the AS_VALUE function to indicate which key reference should be copied.

CREATE TABLE t AS SELECT carrier, seats, COUNT(*) FROM flights GROUP BY carrier;
----
! 40001 1:35 Non-aggregate SELECT expression(s) not part of GROUP BY: SEATS
!   Either add the column(s) to the GROUP BY or remove them from the SELECT.

CREATE TABLE t AS SELECT carrier, seats - miles, COUNT(*) FROM flights GROUP BY carrier;
----
! 40001 1:35 Non-aggregate SELECT expression(s) not part of GROUP BY: (SEATS - MILES)
!   Either add the column(s) to the GROUP BY or remove them from the SELECT.

CREATE TABLE t AS SELECT * FROM flights GROUP BY carrier;
----
! 40001 1:19 GROUP BY requires aggregate functions in either the SELECT or HAVING clause.

CREATE TABLE t AS SELECT carrier FROM flights GROUP BY carrier;
----
! 40001 1:19 GROUP BY requires aggregate functions in either the SELECT or HAVING clause.

CREATE TABLE t AS SELECT carrier FROM flights GROUP BY carrier HAVING COUNT(*) > 1;
----
! 40001 1:19 The projection contains no value columns.

CREATE TABLE t AS SELECT carrier, COUNT(*) AS carrier FROM flights GROUP BY carrier;
----
! 40001 1:14 Duplicate value columns found in schema: `CARRIER` BIGINT

CREATE TABLE t AS SELECT carrier, COUNT(*) AS n, MAX(seats) AS n FROM flights GROUP BY carrier;
----
! 40001 1:14 Duplicate value columns found in schema: `N` BIGINT

CREATE TABLE t AS SELECT carrier, COUNT(*) AS rowtime FROM flights GROUP BY carrier;
----
! 40001 1:35 `ROWTIME` is a reserved column name. You cannot use it as an alias for a column.

CREATE TABLE t AS SELECT carrier, COUNT(*) FROM flights GROUP BY carrier, flights.carrier;
----
! 40001 1:75 Duplicate GROUP BY expression: FLIGHTS.CARRIER

CREATE TABLE t AS SELECT carrier, COUNT(*) FROM flights GROUP BY SUM(seats);
----
! 40001 1:66 GROUP BY does not support aggregate functions: SUM is an aggregate function.

CREATE TABLE t AS SELECT carrier, SUM(COUNT(*)) FROM flights GROUP BY carrier;
----
! 40001 1:39 Aggregate functions can not be nested: SUM(COUNT())

CREATE TABLE t AS SELECT COUNT(*) FROM flights;
----
! 40001 1:26 CREATE TABLE AS SELECT statement does not support aggregate function [COUNT(ROWTIME)] without a GROUP BY clause.

CREATE TABLE t AS SELECT carrier, COUNT(*) FROM flights WHERE COUNT(*) > 1 GROUP BY carrier;
----
! 40001 1:63 WHERE does not support aggregate functions: COUNT is an aggregate function.

CREATE TABLE t AS SELECT carrier, COUNT(*) FROM flights GROUP BY carrier HAVING COUNT(*) > '1';
----
! 40001 1:81 Error in HAVING expression: Cannot compare COUNT() (BIGINT) to '1' (STRING) with GREATER_THAN.
!   Statement: (COUNT() > '1')

CREATE TABLE t AS SELECT carrier, COUNT(*) FROM flights GROUP BY carrier HAVING seats > 1;
----
! 40001 1:81 Non-aggregate HAVING expression not part of GROUP BY: SEATS
!   Consider switching the HAVING clause to a WHERE clause before the GROUP BY.

CREATE TABLE t AS SELECT carrier, COUNT(*) FROM flights WHERE delay GROUP BY carrier;
----
! 40001 1:63 Type error in WHERE expression: Should evaluate to boolean but is DELAY (DOUBLE) instead.
!   Statement: DELAY

CREATE TABLE t AS SELECT carrier, COUNT(*) FROM flights WHERE delay > 'x' GROUP BY carrier;
----
! 40001 1:63 Error in WHERE expression: Cannot compare DELAY (DOUBLE) to 'x' (STRING) with GREATER_THAN.
!   Statement: (DELAY > 'x')

CREATE TABLE t AS SELECT carrier, COUNT(*) FROM flights WHERE info->z = 1 GROUP BY carrier;
----
! 40001 1:63 Error in WHERE expression: Could not find field 'Z' in 'INFO'. It is STRUCT<`X` INTEGER, `Y` STRING>.
!   Statement: (INFO->Z = 1)

CREATE TABLE t AS SELECT carrier, MAX(info->x) AS m, MAX(tags[1]) FROM flights WHERE at > '2013-01-01' AND day = '2013-02-03' GROUP BY carrier;
----
TABLE T: `CARRIER` STRING KEY, `M` INTEGER, `KSQL_COL_0` STRING
topic T x 4, KAFKA → JSON
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `CARRIER`, cast(max(`INFO`.`X`) AS INT) AS `M`, max(if((1) IN (0, -2147483648), NULL, try_element_at(`TAGS`, (1)))) AS `KSQL_COL_0`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `CARRIER` AS `__KEY_0` FROM `T_7__IN0` WHERE (coalesce(`AT` > timestamp_millis(1356998400000L), false) AND coalesce(`DAY` = date_from_unix_date(15739), false))) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

CREATE TABLE t AS SELECT carrier, COUNT(*) FROM flights WHERE delays > 1 GROUP BY carrier;
----
! 40001 1:63 Line: 1, Col: 63: WHERE column 'DELAYS' cannot be resolved.
!   Did you mean DELAY?

CREATE TABLE t AS SELECT carrier, COUNT(*) FROM flights WHERE g.delay > 1 GROUP BY carrier;
----
! 40001 1:63 'G' is not a valid stream/table name or alias.

CREATE TABLE t AS SELECT carrier, CONT(*) FROM flights GROUP BY carrier;
----
! 40001 1:35 Can't find any functions with the name 'CONT'
!   Did you mean COUNT?

CREATE TABLE t AS SELECT carrier, SUM(carrier) FROM flights GROUP BY carrier;
----
! 40001 1:35 Function 'SUM' does not accept parameters (STRING).
!   Valid alternatives are:
!   SUM(NUMBER)
!   For detailed information on a function run: DESCRIBE FUNCTION <Function-Name>;

CREATE TABLE t AS SELECT carrier, MAX(carrier + 1) FROM flights GROUP BY carrier;
----
! 40001 1:39 Error processing expression: (CARRIER + 1). Unsupported arithmetic types. STRING INTEGER
!   Statement: (CARRIER + 1)

CREATE TABLE t AS SELECT tail, COUNT(*) FROM flight GROUP BY tail;
----
! 40001 1:46 Line: 1, Col: 46: Source `FLIGHT` does not exist.
!   Did you mean FLIGHTS?

CREATE TABLE t AS SELECT tail, COUNT(*) FROM "flights" GROUP BY tail;
----
! 40001 1:46 Line: 1, Col: 46: Source `flights` does not exist.
!   Did you mean FLIGHTS? Hint: try removing double quotes from the source name.

CREATE TABLE by_tail AS SELECT tail, COUNT(*) FROM flights GROUP BY tail;
----
! 40001 1:14 Cannot add table 'BY_TAIL': A table with the same name already exists

# Nothing of a value can end a literal or be taken for a variable of Spark's.
CREATE TABLE t AS SELECT tail, COUNT(*) FROM flights WHERE carrier IN ('it''s', '\', '${HOME}', 'a	b') GROUP BY tail;
----
TABLE T: `TAIL` STRING KEY, `KSQL_COL_0` BIGINT
topic T x 4, KAFKA → JSON
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `TAIL`, cast(count(1) AS BIGINT) AS `KSQL_COL_0`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `TAIL` AS `__KEY_0` FROM `T_7__IN0` WHERE (coalesce(`CARRIER` IN ('it\'s', '\\', '\u0024{HOME}', 'a	b'), false))) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

# What is not there yet says so.
CREATE STREAM s AS SELECT * FROM flights;
----
STREAM S: `TAIL` STRING KEY, `CARRIER` STRING, `DELAY` DOUBLE, `SEATS` INTEGER, `MILES` BIGINT, `FARE` DECIMAL(6, 2), `DAY` DATE, `AT` TIMESTAMP, `TAGS` ARRAY<STRING>, `INFO` STRUCT<`X` INTEGER, `Y` STRING>
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, `CARRIER` AS `CARRIER`, `DELAY` AS `DELAY`, `SEATS` AS `SEATS`, `MILES` AS `MILES`, `FARE` AS `FARE`, `DAY` AS `DAY`, `AT` AS `AT`, `TAGS` AS `TAGS`, `INFO` AS `INFO`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

CREATE TABLE t AS SELECT maker, COUNT(*) FROM planes GROUP BY maker;
----
TABLE T: `MAKER` STRING KEY, `KSQL_COL_0` BIGINT
topic T x 4, KAFKA → JSON
CTAS_T_7 reads planes as T_7__IN0, watermark None
SELECT * FROM `T_7__MEMBERS`

CREATE TABLE t AS SELECT tail, COUNT(*) FROM flights f JOIN planes p ON f.tail = p.tail GROUP BY tail;
----
! 40001 1:98 Line: 1, Col: 98: Column 'TAIL' is ambiguous. Could be F.TAIL or P.TAIL.

CREATE TABLE t AS SELECT tail, COUNT(*) FROM flights WINDOW SESSION (5 MINUTES) GROUP BY tail;
----
TABLE T: `TAIL` STRING KEY, `KSQL_COL_0` BIGINT
topic T x 4, KAFKA → JSON
SESSION 300000 grace 86100000 keep 86400000
CTAS_T_7 reads flights as T_7__IN0, watermark 86100000
SELECT * FROM `T_7__SESSIONS`

CREATE TABLE t AS SELECT tail, COUNT(*) FROM flights WINDOW TUMBLING (SIZE 5 MINUTES) GROUP BY tail EMIT FINAL;
----
TABLE T: `TAIL` STRING KEY, `KSQL_COL_0` BIGINT
topic T x 4, KAFKA → JSON
TUMBLING 300000 grace 86100000 keep 86400000
CTAS_T_7 reads flights as T_7__IN0, watermark 86100000
SELECT `__KEY_0` AS `TAIL`, unix_millis(`__W`.start) AS `WINDOWSTART`, unix_millis(`__W`.end) AS `WINDOWEND`, cast(count(1) AS BIGINT) AS `KSQL_COL_0`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, window(`__TS`, '300000 milliseconds') AS `__W` FROM (SELECT * FROM (SELECT *, standpipe_stream_time(`ROWPARTITION`, `ROWOFFSET`, `ROWTIME`) AS `__T` FROM (SELECT *, `TAIL` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL) WHERE `ROWTIME` - pmod(`ROWTIME`, 300000L) + 300000L + 86100000L > `__T`)) GROUP BY `__W`, `__KEY_0`

CREATE TABLE t AS SELECT tail, COUNT(*) FROM flights GROUP BY tail EMIT FINAL;
----
! 40001 1:19 EMIT FINAL is only supported for windowed aggregations.

CREATE TABLE t AS SELECT tail, COUNT(*) FROM flights WINDOW TUMBLING (SIZE 5 MINUTES);
----
! 40001 1:54 WINDOW clause requires a GROUP BY clause.

CREATE TABLE t AS SELECT tail, COUNT(*) FROM flights GROUP BY tail LIMIT 5;
----
! 40001 1:19 CREATE TABLE AS SELECT statements don't support LIMIT clause.

CREATE TABLE t WITH (WINDOW_SIZE='1 DAY') AS SELECT tail, COUNT(*) FROM flights GROUP BY tail;
----
! 40001 1:22 Invalid config variable(s) in the WITH clause: WINDOW_SIZE

CREATE TABLE t WITH (KAFKA_TOPIC='flights') AS SELECT tail, COUNT(*) FROM flights GROUP BY tail;
----
! 40001 1:22 Topic 'flights' already belongs to STREAM FLIGHTS.
!   Name another KAFKA_TOPIC.

CREATE TABLE t WITH (KAFKA_TOPIC='my_table') AS SELECT tail, COUNT(*) FROM flights GROUP BY tail;
----
TABLE T: `TAIL` STRING KEY, `KSQL_COL_0` BIGINT
topic my_table x 4, KAFKA → JSON
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `TAIL`, cast(count(1) AS BIGINT) AS `KSQL_COL_0`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `TAIL` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

CREATE TABLE IF NOT EXISTS by_tail AS SELECT tail, COUNT(*) AS n FROM flights GROUP BY tail;
----
TABLE BY_TAIL: `TAIL` STRING KEY, `N` BIGINT
topic BY_TAIL x 4, KAFKA → JSON
CTAS_BY_TAIL_7 reads flights as BY_TAIL_7__IN0, watermark None
SELECT `__KEY_0` AS `TAIL`, cast(count(1) AS BIGINT) AS `N`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `TAIL` AS `__KEY_0` FROM `BY_TAIL_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

CREATE TABLE t WITH (ACCEPTABLE_OFFSET_LAG=10000) AS SELECT tail, COUNT(*) AS n FROM flights GROUP BY tail;
----
TABLE T: `TAIL` STRING KEY, `N` BIGINT
topic T x 4, KAFKA → JSON
may trail by 10000
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `TAIL`, cast(count(1) AS BIGINT) AS `N`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `TAIL` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

CREATE TABLE t WITH (ACCEPTABLE_OFFSET_LAG=-1) AS SELECT tail, COUNT(*) FROM flights GROUP BY tail;
----
! 40001 1:22 Invalid lag in WITH clause: -1 is below 0

CREATE TABLE t WITH (ACCEPTABLE_REPLICA_LAG_MS=0, ACCEPTABLE_SOURCE_LAG_MS='3000') AS SELECT tail, COUNT(*) AS n FROM flights GROUP BY tail;
----
TABLE T: `TAIL` STRING KEY, `N` BIGINT
topic T x 4, KAFKA → JSON
may be 0 ms behind, sources 3000
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `TAIL`, cast(count(1) AS BIGINT) AS `N`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `TAIL` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

CREATE OR REPLACE TABLE by_tail WITH (ACCEPTABLE_SOURCE_LAG_MS=3000) AS SELECT tail, COUNT(*) AS n FROM flights GROUP BY tail;
----
TABLE BY_TAIL: `TAIL` STRING KEY, `N` BIGINT
topic BY_TAIL x 4, KAFKA → JSON
may be None ms behind, sources 3000
CTAS_BY_TAIL_7 reads flights as BY_TAIL_7__IN0, watermark None
SELECT `__KEY_0` AS `TAIL`, cast(count(1) AS BIGINT) AS `N`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `TAIL` AS `__KEY_0` FROM `BY_TAIL_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

CREATE TABLE t WITH (ACCEPTABLE_SOURCE_LAG_MS=-1) AS SELECT tail, COUNT(*) FROM flights GROUP BY tail;
----
! 40001 1:22 Invalid lag in WITH clause: -1 is below 0

# No replica would refuse.
CREATE STREAM t WITH (ACCEPTABLE_REPLICA_LAG_MS=5) AS SELECT * FROM flights;
----
! 40001 1:23 ACCEPTABLE_REPLICA_LAG_MS is for tables with replicas, of CREATE TABLE … AS SELECT and CREATE SOURCE TABLE: T has none.

CREATE TABLE t AS SELECT carrier, COLLECT_SET(MAP('a' := seats)) AS m FROM flights GROUP BY carrier;
----
TABLE T: `CARRIER` STRING KEY, `M` ARRAY<MAP<STRING, INTEGER>>
topic T x 4, KAFKA → JSON
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `CARRIER`, filter(transform(array_sort(collect_list(named_struct('o', `__ORDER`, 'v', map('a', `SEATS`))), (l, r) -> CASE WHEN l.`o` < r.`o` THEN -1 WHEN l.`o` > r.`o` THEN 1 ELSE 0 END), e -> e.`v`), (e, i) -> array_position(transform(transform(array_sort(collect_list(named_struct('o', `__ORDER`, 'v', map('a', `SEATS`))), (l, r) -> CASE WHEN l.`o` < r.`o` THEN -1 WHEN l.`o` > r.`o` THEN 1 ELSE 0 END), e -> e.`v`), m -> coalesce(to_json(array_sort(transform(map_entries(m), e -> struct(e.key AS k, e.value AS v)), (l, r) -> CASE WHEN l.k < r.k THEN -1 WHEN l.k > r.k THEN 1 ELSE 0 END), map('ignoreNullFields', 'false')), '')), element_at(transform(transform(array_sort(collect_list(named_struct('o', `__ORDER`, 'v', map('a', `SEATS`))), (l, r) -> CASE WHEN l.`o` < r.`o` THEN -1 WHEN l.`o` > r.`o` THEN 1 ELSE 0 END), e -> e.`v`), m -> coalesce(to_json(array_sort(transform(map_entries(m), e -> struct(e.key AS k, e.value AS v)), (l, r) -> CASE WHEN l.k < r.k THEN -1 WHEN l.k > r.k THEN 1 ELSE 0 END), map('ignoreNullFields', 'false')), '')), i + 1)) = i + 1) AS `M`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `CARRIER` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

# The statement as ksqlDB's formatter has it.
CREATE TABLE t AS SELECT f.seats + 1 AS more, tail, carrier, COUNT(*) FROM flights f WINDOW TUMBLING (SIZE 1 SECOND) WHERE seats > 1 GROUP BY tail, carrier, f.seats + 1 HAVING COUNT(*) > 1;
----
! 40001 1:14 Key format does not support schema.
!   format: KAFKA
!   schema: Persistence{columns=[`TAIL` STRING KEY, `CARRIER` STRING KEY, `MORE` INTEGER KEY], features=[]}
!   reason: The 'KAFKA' format only supports a single field. Got: [`TAIL` STRING KEY, `CARRIER` STRING KEY, `MORE` INTEGER KEY]
!   Statement: CREATE TABLE T AS SELECT
!     (F.SEATS + 1) MORE,
!     F.TAIL TAIL,
!     F.CARRIER CARRIER,
!     COUNT(*) KSQL_COL_0
!   FROM FLIGHTS F
!   WINDOW TUMBLING ( SIZE 1000 MILLISECONDS )
!   WHERE (F.SEATS > 1)
!   GROUP BY F.TAIL, F.CARRIER, (F.SEATS + 1)
!   HAVING (COUNT(*) > 1)
!   EMIT CHANGES

# Without arguments.
CREATE TABLE t AS SELECT tail, MAX() AS m FROM flights GROUP BY tail;
----
! 40001 1:32 Function 'MAX' does not accept parameters ().
!   Valid alternatives are:
!   MAX(T)
!   For detailed information on a function run: DESCRIBE FUNCTION <Function-Name>;

CREATE TABLE t AS SELECT tail, TOPK() AS m FROM flights GROUP BY tail;
----
! 40001 1:32 Function 'TOPK' does not accept parameters ().
!   Valid alternatives are:
!   TOPK(T, INTEGER)
!   TOPK(T, ANY, INTEGER)
!   TOPK(T, ANY, ANY, INTEGER)
!   TOPK(T, ANY, ANY, ANY, INTEGER)
!   TOPK(T, ANY, ANY, ANY, ANY, INTEGER)
!   TOPK(T, ANY, ANY, ANY, ANY, ANY, INTEGER)
!   TOPK(T, ANY, ANY, ANY, ANY, ANY, ANY, INTEGER)
!   TOPK(T, ANY, ANY, ANY, ANY, ANY, ANY, ANY, INTEGER)
!   TOPK(T, ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY, INTEGER)
!   For detailed information on a function run: DESCRIBE FUNCTION <Function-Name>;

CREATE STREAM s AS SELECT tail, DATEADD() AS m FROM flights;
----
! 40001 1:33 Function 'dateadd' does not accept parameters ().
!   Valid alternatives are:
!   DATEADD(STRING, INTEGER, DATE)
!   For detailed information on a function run: DESCRIBE FUNCTION <Function-Name>;

CREATE STREAM s AS SELECT tail, delay AS `rowtime` FROM flights;
----
! 40001 1:33 `rowtime` is a reserved column name. You cannot use it as an alias for a column.

# Spark cannot order maps: their texts are compared.
CREATE TABLE t AS SELECT carrier, ATTR(MAP('a' := seats)) AS m FROM flights GROUP BY carrier;
----
TABLE T: `CARRIER` STRING KEY, `M` MAP<STRING, INTEGER>
topic T x 4, KAFKA → JSON
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `CARRIER`, if(size(array_distinct(transform(transform(array_sort(collect_list(named_struct('o', `__ORDER`, 'v', map('a', `SEATS`))), (l, r) -> CASE WHEN l.`o` < r.`o` THEN -1 WHEN l.`o` > r.`o` THEN 1 ELSE 0 END), e -> e.`v`), m -> coalesce(to_json(array_sort(transform(map_entries(m), e -> struct(e.key AS k, e.value AS v)), (l, r) -> CASE WHEN l.k < r.k THEN -1 WHEN l.k > r.k THEN 1 ELSE 0 END), map('ignoreNullFields', 'false')), '')))) = 1, element_at(transform(array_sort(collect_list(named_struct('o', `__ORDER`, 'v', map('a', `SEATS`))), (l, r) -> CASE WHEN l.`o` < r.`o` THEN -1 WHEN l.`o` > r.`o` THEN 1 ELSE 0 END), e -> e.`v`), 1), NULL) AS `M`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `CARRIER` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`

# A histogram has the thousand values that came first.
CREATE TABLE t AS SELECT carrier, HISTOGRAM(tail) AS h FROM flights GROUP BY carrier;
----
TABLE T: `CARRIER` STRING KEY, `H` MAP<STRING, BIGINT>
topic T x 4, KAFKA → JSON
CTAS_T_7 reads flights as T_7__IN0, watermark None
SELECT `__KEY_0` AS `CARRIER`, map_from_entries(transform(slice(array_distinct(filter(transform(array_sort(collect_list(named_struct('o', `__ORDER`, 'v', `TAIL`)), (l, r) -> CASE WHEN l.`o` < r.`o` THEN -1 WHEN l.`o` > r.`o` THEN 1 ELSE 0 END), e -> e.`v`), e -> e IS NOT NULL)), 1, 1000), k -> struct(k, cast(size(filter(collect_list(`TAIL`), x -> x = k)) AS BIGINT)))) AS `H`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `CARRIER` AS `__KEY_0` FROM `T_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`
