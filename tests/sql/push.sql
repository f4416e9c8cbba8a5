SELECT * FROM flights EMIT CHANGES;
----
push FLIGHTS, keys ['TAIL']
`TAIL` STRING, `CARRIER` STRING, `DELAY` DOUBLE, `SEATS` INTEGER, `MILES` BIGINT, `FARE` DECIMAL(6, 2), `DAY` DATE, `AT` TIMESTAMP, `TAGS` ARRAY<STRING>, `INFO` STRUCT<`X` INTEGER, `Y` STRING>

SELECT tail, delay * 2 AS d, rowtime, rowpartition, rowoffset FROM flights f WHERE f.seats > 10 EMIT CHANGES LIMIT 3;
----
push FLIGHTS filtered, keys ['TAIL']
`TAIL` STRING, `D` DOUBLE, `ROWTIME` BIGINT, `ROWPARTITION` INTEGER, `ROWOFFSET` BIGINT
limit 3

SELECT * FROM by_tail EMIT CHANGES;
----
push BY_TAIL, keys ['TAIL']
`TAIL` STRING, `N` BIGINT, `WORST` DOUBLE

# A table without replicas can be pushed on, though not pulled from.
SELECT maker FROM planes EMIT CHANGES;
----
push PLANES, keys []
`MAKER` STRING

# A row may cease to satisfy this, and is then taken back …
SELECT * FROM by_tail WHERE n > 3 EMIT CHANGES;
----
push BY_TAIL filtered, may leave, keys ['TAIL']
`TAIL` STRING, `N` BIGINT, `WORST` DOUBLE

# … but never ceases to satisfy a condition on its key.
SELECT * FROM by_tail WHERE rowkey LIKE 'N%' EMIT CHANGES;
----
push BY_TAIL filtered, keys ['TAIL']
`TAIL` STRING, `N` BIGINT, `WORST` DOUBLE

SELECT * FROM by_day WHERE windowstart > 0 EMIT CHANGES;
----
push BY_DAY filtered, keys ['CARRIER', 'WINDOWSTART', 'WINDOWEND']
`CARRIER` STRING, `WINDOWSTART` BIGINT, `WINDOWEND` BIGINT, `N` BIGINT

SELECT windowend, n FROM by_day WHERE n = 1 EMIT CHANGES LIMIT 0;
----
push BY_DAY filtered, may leave, keys ['WINDOWEND']
`WINDOWEND` BIGINT, `N` BIGINT
limit 0

SELECT carrier, COUNT(*) FROM flights GROUP BY carrier EMIT CHANGES;
----
! 40001 1:1 Push queries don't support GROUP BY. Keep the result with a persistent query, and push on that: CREATE TABLE name AS SELECT … EMIT CHANGES; then SELECT * FROM name EMIT CHANGES;

SELECT COUNT(*) FROM flights EMIT CHANGES;
----
! 40001 1:8 Push queries don't support COUNT. Keep the result with a persistent query, and push on that: CREATE TABLE name AS SELECT … EMIT CHANGES; then SELECT * FROM name EMIT CHANGES;

SELECT * FROM flights f JOIN planes p ON f.tail = p.tail EMIT CHANGES;
----
! 40001 1:1 Push queries don't support JOIN. Keep the result with a persistent query, and push on that: CREATE STREAM name AS SELECT … EMIT CHANGES; then SELECT * FROM name EMIT CHANGES;

SELECT * FROM flights PARTITION BY carrier EMIT CHANGES;
----
! 40001 1:1 Push queries don't support PARTITION BY. Keep the result with a persistent query, and push on that: CREATE STREAM name AS SELECT … EMIT CHANGES; then SELECT * FROM name EMIT CHANGES;

SELECT * FROM by_tail EMIT FINAL;
----
! 40001 1:1 Push queries don't support EMIT FINAL. Keep the result with a persistent query, and push on that: CREATE TABLE name AS SELECT … EMIT CHANGES; then SELECT * FROM name EMIT CHANGES;

SELECT * FROM flights EMIT CHANGES LIMIT -1;
----
! 40001 1:43 LIMIT must not be negative in push queries and PRINT.

SELECT * FROM flights EMIT CHANGES LIMIT 2.5;
----
! 40001 1:42 Failed to prepare statement: Value must be integer for command: LIMIT

SELECT nothing FROM flights EMIT CHANGES;
----
! 40001 1:8 Line: 1, Col: 8: SELECT column 'NOTHING' cannot be resolved.

SELECT * FROM nowhere EMIT CHANGES;
----
! 40001 1:15 Line: 1, Col: 15: Source `NOWHERE` does not exist.

EXPLAIN ROUTE SELECT tail FROM flights EMIT CHANGES;
----
! 40001 1:15 A push query reads a topic and has no route to replicas.

# EXPLODE makes a row for each element; an expression may stand around it.
SELECT tail, EXPLODE(tags), UCASE(EXPLODE(SPLIT(carrier, 'A'))) AS part FROM flights EMIT CHANGES;
----
push FLIGHTS, keys ['TAIL']
`TAIL` STRING, `KSQL_COL_0` STRING, `PART` STRING

SELECT EXPLODE(seats) FROM flights EMIT CHANGES;
----
! 40001 1:8 Function 'explode' does not accept parameters (INTEGER).
!   Valid alternatives are:
!   EXPLODE(ARRAY<T>)

SELECT CASE WHEN seats > 1 THEN EXPLODE(tags) END FROM flights EMIT CHANGES;
----
! 40001 1:33 Table functions cannot be used in CASE: (CASE WHEN (SEATS > 1) THEN EXPLODE(TAGS) END)

SELECT CUBE_EXPLODE(tags) FROM flights EMIT CHANGES;
----
! 40001 1:8 The function CUBE_EXPLODE in a push query is not supported yet.

SELECT tail FROM flights WHERE EXPLODE(tags) = 'a' EMIT CHANGES;
----
! 40001 1:32 WHERE does not support table functions: EXPLODE is a table function.
