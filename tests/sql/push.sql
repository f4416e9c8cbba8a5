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
TABLE transient_0: `CARRIER` STRING KEY, `KSQL_COL_0` BIGINT
topic transient_0-changelog x 1, JSON → JSON
transient_0 reads flights as TRANSIENT_0_7__IN0, watermark None
SELECT `__KEY_0` AS `CARRIER`, cast(count(1) AS BIGINT) AS `KSQL_COL_0`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, `CARRIER` AS `__KEY_0` FROM `TRANSIENT_0_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`
shows (('CARRIER', 'CARRIER'), ('KSQL_COL_0', 'KSQL_COL_0'))

SELECT COUNT(*) FROM flights EMIT CHANGES;
----
TABLE transient_0: `KSQL_KEY_0` INTEGER KEY, `KSQL_COL_0` BIGINT
topic transient_0-changelog x 1, JSON → JSON
transient_0 reads flights as TRANSIENT_0_7__IN0, watermark None
SELECT `__KEY_0` AS `KSQL_KEY_0`, cast(count(1) AS BIGINT) AS `KSQL_COL_0`, max(`ROWTIME`) AS `__ROWTIME`, true AS `__LIVE` FROM (SELECT *, (1) AS `__KEY_0` FROM `TRANSIENT_0_7__IN0`) WHERE `__KEY_0` IS NOT NULL GROUP BY `__KEY_0`
shows (('KSQL_COL_0', 'KSQL_COL_0'),)

SELECT * FROM flights f JOIN planes p ON f.tail = p.tail EMIT CHANGES;
----
STREAM transient_0: `F_TAIL` STRING KEY, `F_CARRIER` STRING, `F_DELAY` DOUBLE, `F_SEATS` INTEGER, `F_MILES` BIGINT, `F_FARE` DECIMAL(6, 2), `F_DAY` DATE, `F_AT` TIMESTAMP, `F_TAGS` ARRAY<STRING>, `F_INFO` STRUCT<`X` INTEGER, `Y` STRING>, `P_TAIL` STRING, `P_MAKER` STRING
topic transient_0-changelog x 1, JSON → JSON
transient_0 reads flights as TRANSIENT_0_7__IN0, watermark None; planes as TRANSIENT_0_7__IN1, watermark None
SELECT * FROM (SELECT *, `F_TAIL` AS `ROWKEY`, timestamp_millis(`ROWTIME`) AS `__TS` FROM (SELECT `__L`.`c0` AS `F_TAIL`, `__L`.`c1` AS `F_CARRIER`, `__L`.`c2` AS `F_DELAY`, `__L`.`c3` AS `F_SEATS`, `__L`.`c4` AS `F_MILES`, `__L`.`c5` AS `F_FARE`, `__L`.`c6` AS `F_DAY`, `__L`.`c7` AS `F_AT`, `__L`.`c8` AS `F_TAGS`, `__L`.`c9` AS `F_INFO`, `__L`.`c10` AS `F_ROWTIME`, `__L`.`c11` AS `ROWTIME`, `__R`.`c0` AS `P_TAIL`, `__R`.`c1` AS `P_MAKER`, `__R`.`c2` AS `P_ROWTIME`, `__ORDER`, (true) AS `__PRESENT` FROM (SELECT *, from_json(`__LEFT`, 'STRUCT<c0: STRING, c1: STRING, c2: DOUBLE, c3: INT, c4: BIGINT, c5: DECIMAL(6, 2), c6: DATE, c7: TIMESTAMP, c8: ARRAY<STRING>, c9: STRUCT<`X`: INT, `Y`: STRING>, c10: BIGINT, c11: BIGINT>') AS `__L`, from_json(`__RIGHT`, 'STRUCT<c0: STRING, c1: STRING, c2: BIGINT>') AS `__R` FROM `TRANSIENT_0_7__J0` WHERE `__RIGHT` IS NOT NULL)))
shows (('F_TAIL', 'F_TAIL'), ('F_CARRIER', 'F_CARRIER'), ('F_DELAY', 'F_DELAY'), ('F_SEATS', 'F_SEATS'), ('F_MILES', 'F_MILES'), ('F_FARE', 'F_FARE'), ('F_DAY', 'F_DAY'), ('F_AT', 'F_AT'), ('F_TAGS', 'F_TAGS'), ('F_INFO', 'F_INFO'), ('P_TAIL', 'P_TAIL'), ('P_MAKER', 'P_MAKER'))

SELECT * FROM flights PARTITION BY carrier EMIT CHANGES;
----
STREAM transient_0: `CARRIER` STRING KEY, `DELAY` DOUBLE, `SEATS` INTEGER, `MILES` BIGINT, `FARE` DECIMAL(6, 2), `DAY` DATE, `AT` TIMESTAMP, `TAGS` ARRAY<STRING>, `INFO` STRUCT<`X` INTEGER, `Y` STRING>, `TAIL` STRING
topic transient_0-changelog x 1, JSON → JSON
transient_0 reads flights as TRANSIENT_0_7__IN0, watermark None
SELECT `CARRIER` AS `CARRIER`, `DELAY` AS `DELAY`, `SEATS` AS `SEATS`, `MILES` AS `MILES`, `FARE` AS `FARE`, `DAY` AS `DAY`, `AT` AS `AT`, `TAGS` AS `TAGS`, `INFO` AS `INFO`, `TAIL` AS `TAIL`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `TRANSIENT_0_7__IN0`
shows (('CARRIER', 'CARRIER'), ('DELAY', 'DELAY'), ('SEATS', 'SEATS'), ('MILES', 'MILES'), ('FARE', 'FARE'), ('DAY', 'DAY'), ('AT', 'AT'), ('TAGS', 'TAGS'), ('INFO', 'INFO'), ('TAIL', 'TAIL'))

SELECT * FROM by_tail EMIT FINAL;
----
! 40001 1:1 EMIT FINAL is only supported for windowed aggregations.

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
!   For detailed information on a function run: DESCRIBE FUNCTION <Function-Name>;

SELECT CASE WHEN seats > 1 THEN EXPLODE(tags) END FROM flights EMIT CHANGES;
----
! 40001 1:33 Table functions cannot be used in CASE: (CASE WHEN (SEATS > 1) THEN EXPLODE(TAGS) END)

SELECT CUBE_EXPLODE(tags) FROM flights EMIT CHANGES;
----
! 40001 1:8 The function CUBE_EXPLODE in a push query is not supported yet.

SELECT tail FROM flights WHERE EXPLODE(tags) = 'a' EMIT CHANGES;
----
! 40001 1:32 WHERE does not support table functions: EXPLODE is a table function.
