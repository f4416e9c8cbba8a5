# Two streams, within a time.
CREATE STREAM s AS SELECT a.tail, a.delay, b.delay AS other FROM flights a JOIN departures b WITHIN (1 MINUTE, 2 MINUTES) ON a.tail = b.tail;
----
STREAM S: `A_TAIL` STRING KEY, `A_DELAY` DOUBLE, `OTHER` DOUBLE
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark 86400000; departures as S_7__IN1, watermark 86400000
SELECT `ROWKEY` AS `A_TAIL`, `A_DELAY` AS `A_DELAY`, `B_DELAY` AS `OTHER`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM (SELECT `__L`.`TAIL` AS `A_TAIL`, `__L`.`CARRIER` AS `A_CARRIER`, `__L`.`DELAY` AS `A_DELAY`, `__L`.`SEATS` AS `A_SEATS`, `__L`.`MILES` AS `A_MILES`, `__L`.`FARE` AS `A_FARE`, `__L`.`DAY` AS `A_DAY`, `__L`.`AT` AS `A_AT`, `__L`.`TAGS` AS `A_TAGS`, `__L`.`INFO` AS `A_INFO`, `__L`.`ROWTIME` AS `A_ROWTIME`, `__L`.`ROWPARTITION` AS `A_ROWPARTITION`, `__L`.`ROWOFFSET` AS `A_ROWOFFSET`, `__R`.`TAIL` AS `B_TAIL`, `__R`.`CARRIER` AS `B_CARRIER`, `__R`.`DELAY` AS `B_DELAY`, `__R`.`SEATS` AS `B_SEATS`, `__R`.`ROWTIME` AS `B_ROWTIME`, `__R`.`ROWPARTITION` AS `B_ROWPARTITION`, `__R`.`ROWOFFSET` AS `B_ROWOFFSET`, `__L`.`__JK` AS `ROWKEY`, greatest(`__L`.`ROWTIME`, `__R`.`ROWTIME`) AS `ROWTIME`, true AS `__PRESENT`, timestamp_millis(greatest(`__L`.`ROWTIME`, `__R`.`ROWTIME`)) AS `__TS`, greatest(`__L`.`__ORDER`, `__R`.`__ORDER`) AS `__ORDER` FROM (SELECT *, `TAIL` AS `__JK` FROM `S_7__IN0`) AS `__L` JOIN (SELECT *, `TAIL` AS `__JK` FROM `S_7__IN1`) AS `__R` ON `__L`.`__JK` = `__R`.`__JK` AND `__R`.`__TS` >= `__L`.`__TS` - INTERVAL '60.0' SECOND AND `__R`.`__TS` <= `__L`.`__TS` + INTERVAL '120.0' SECOND)

# Names that both have carry their alias; one of the join columns must be there.
CREATE STREAM s AS SELECT a.delay, b.seats FROM flights a JOIN departures b WITHIN 1 MINUTE ON a.tail = b.tail;
----
! 40001 1:20 Key missing from projection (ie, SELECT).
!   The query used to build `S` must include the join expressions A.TAIL or B.TAIL in its projection (eg, SELECT A.TAIL...).

CREATE STREAM s AS SELECT a.tail, delay FROM flights a JOIN departures b WITHIN 1 MINUTE ON a.tail = b.tail;
----
! 40001 1:35 Line: 1, Col: 35: Column 'DELAY' is ambiguous. Could be A.DELAY or B.DELAY.

CREATE STREAM s AS SELECT a.tail, b.delay FROM flights a JOIN departures b ON a.tail = b.tail;
----
! 40001 1:63 Stream-Stream joins must have a WITHIN clause specified. None was provided. To learn about how to specify a WITHIN clause with a stream-stream join, please visit: https://docs.confluent.io/current/ksql/docs/syntax-reference.html#create-stream-as-select
!   For example: … JOIN … WITHIN 1 HOUR ON …

CREATE STREAM s AS SELECT a.tail, b.delay FROM flights a JOIN departures b WITHIN 1 MINUTE ON a.tail = b.seats;
----
! 40001 1:95 Invalid join condition: types don't match. Got A.TAIL{STRING} = B.SEATS{INTEGER}.
!   Invalid join. Key types differ: STRING vs INTEGER
!   Convert one of them with CAST.

CREATE STREAM s AS SELECT a.tail, b.delay FROM flights a JOIN departures b WITHIN 1 MINUTE ON a.tail = b.tail AND a.seats = b.seats;
----
! 40001 1:95 Invalid join condition: joins on multiple conditions are not yet supported. Got ((A.TAIL = B.TAIL) AND (A.SEATS = B.SEATS)).
!   Join on one STRUCT of all columns: STRUCT(A:=L.A, B:=L.B) = STRUCT(A:=R.A, B:=R.B).

CREATE STREAM s AS SELECT a.tail, b.delay FROM flights a JOIN departures b WITHIN 1 MINUTE ON a.tail = 'x';
----
! 40001 1:104 Invalid comparison expression ''x'' in join '(A.TAIL = 'x')'. Each side of the join comparision must contain references from exactly one source.

# Tables on their primary keys: the union of their changelogs.
CREATE TABLE t AS SELECT a.tail, a.maker, b.maker AS other FROM planes a LEFT JOIN fleet b ON a.tail = b.tail;
----
TABLE T: `A_TAIL` STRING KEY, `A_MAKER` STRING, `OTHER` STRING
topic T x 4, KAFKA → JSON
CTAS_T_7 reads planes as T_7__IN0, watermark None; fleet as T_7__IN1, watermark None
SELECT `ROWKEY` AS `A_TAIL`, `A_MAKER` AS `A_MAKER`, `B_MAKER` AS `OTHER`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM (SELECT if(`__S0`.`__PRESENT`, `__S0`.`TAIL`, NULL) AS `A_TAIL`, if(`__S0`.`__PRESENT`, `__S0`.`MAKER`, NULL) AS `A_MAKER`, if(`__S0`.`__PRESENT`, `__S0`.`ROWTIME`, NULL) AS `A_ROWTIME`, if(`__S1`.`__PRESENT`, `__S1`.`TAIL`, NULL) AS `B_TAIL`, if(`__S1`.`__PRESENT`, `__S1`.`MAKER`, NULL) AS `B_MAKER`, if(`__S1`.`__PRESENT`, `__S1`.`ROWTIME`, NULL) AS `B_ROWTIME`, `__JK` AS `ROWKEY`, `__ORDER`, greatest(`__S0`.`ROWTIME`, `__S1`.`ROWTIME`, `__S0`.`ROWTIME`, `__S1`.`ROWTIME`) AS `ROWTIME`, coalesce(`__S0`.`__PRESENT`, false) AS `__PRESENT` FROM (SELECT `__JK`, max(`__ORDER`) AS `__ORDER`, max_by(`__S0`, `__ORDER`) FILTER (WHERE `__SIDE` = 0) AS `__S0`, max_by(`__S1`, `__ORDER`) FILTER (WHERE `__SIDE` = 1) AS `__S1` FROM (SELECT `TAIL` AS `__JK`, 0 AS `__SIDE`, `__ORDER`, struct(`TAIL`, `MAKER`, `ROWTIME`, `__PRESENT`) AS `__S0`, CAST(NULL AS STRUCT<`TAIL`: STRING, `MAKER`: STRING, `ROWTIME`: BIGINT, `__PRESENT`: BOOLEAN>) AS `__S1` FROM `T_7__IN0` UNION ALL SELECT `TAIL` AS `__JK`, 1 AS `__SIDE`, `__ORDER`, CAST(NULL AS STRUCT<`TAIL`: STRING, `MAKER`: STRING, `ROWTIME`: BIGINT, `__PRESENT`: BOOLEAN>) AS `__S0`, struct(`TAIL`, `MAKER`, `ROWTIME`, `__PRESENT`) AS `__S1` FROM `T_7__IN1`) GROUP BY `__JK`))

CREATE TABLE t AS SELECT ROWKEY, a.maker FROM planes a FULL JOIN fleet b ON a.tail = b.tail;
----
TABLE T: `ROWKEY` STRING KEY, `A_MAKER` STRING
topic T x 4, KAFKA → JSON
CTAS_T_7 reads planes as T_7__IN0, watermark None; fleet as T_7__IN1, watermark None
SELECT `ROWKEY` AS `ROWKEY`, `A_MAKER` AS `A_MAKER`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM (SELECT if(`__S0`.`__PRESENT`, `__S0`.`TAIL`, NULL) AS `A_TAIL`, if(`__S0`.`__PRESENT`, `__S0`.`MAKER`, NULL) AS `A_MAKER`, if(`__S0`.`__PRESENT`, `__S0`.`ROWTIME`, NULL) AS `A_ROWTIME`, if(`__S1`.`__PRESENT`, `__S1`.`TAIL`, NULL) AS `B_TAIL`, if(`__S1`.`__PRESENT`, `__S1`.`MAKER`, NULL) AS `B_MAKER`, if(`__S1`.`__PRESENT`, `__S1`.`ROWTIME`, NULL) AS `B_ROWTIME`, `__JK` AS `ROWKEY`, `__ORDER`, greatest(`__S0`.`ROWTIME`, `__S1`.`ROWTIME`, `__S0`.`ROWTIME`, `__S1`.`ROWTIME`) AS `ROWTIME`, (coalesce(`__S0`.`__PRESENT`, false) OR coalesce(`__S1`.`__PRESENT`, false)) AS `__PRESENT` FROM (SELECT `__JK`, max(`__ORDER`) AS `__ORDER`, max_by(`__S0`, `__ORDER`) FILTER (WHERE `__SIDE` = 0) AS `__S0`, max_by(`__S1`, `__ORDER`) FILTER (WHERE `__SIDE` = 1) AS `__S1` FROM (SELECT `TAIL` AS `__JK`, 0 AS `__SIDE`, `__ORDER`, struct(`TAIL`, `MAKER`, `ROWTIME`, `__PRESENT`) AS `__S0`, CAST(NULL AS STRUCT<`TAIL`: STRING, `MAKER`: STRING, `ROWTIME`: BIGINT, `__PRESENT`: BOOLEAN>) AS `__S1` FROM `T_7__IN0` UNION ALL SELECT `TAIL` AS `__JK`, 1 AS `__SIDE`, `__ORDER`, CAST(NULL AS STRUCT<`TAIL`: STRING, `MAKER`: STRING, `ROWTIME`: BIGINT, `__PRESENT`: BOOLEAN>) AS `__S0`, struct(`TAIL`, `MAKER`, `ROWTIME`, `__PRESENT`) AS `__S1` FROM `T_7__IN1`) GROUP BY `__JK`))

CREATE TABLE t AS SELECT a.tail, a.maker FROM planes a JOIN fleet b ON a.tail = b.maker;
----
! 40001 1:61 Invalid join condition: table-table joins require to join on the primary key of the right input table. Got A.TAIL = B.MAKER.

# What is not built says so.
CREATE TABLE t AS SELECT a.tail, a.maker FROM planes a JOIN fleet b ON a.maker = b.tail;
----
TABLE T: `A_TAIL` STRING KEY, `A_MAKER` STRING
topic T x 4, KAFKA → JSON
CTAS_T_7 reads planes as T_7__IN0, watermark None; fleet as T_7__IN1, watermark None
SELECT `A_TAIL` AS `A_TAIL`, `A_MAKER` AS `A_MAKER`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM (SELECT *, `A_TAIL` AS `ROWKEY`, timestamp_millis(`ROWTIME`) AS `__TS` FROM (SELECT `__I`.`c0` AS `A_TAIL`, `__L`.`c1` AS `A_MAKER`, `__L`.`c2` AS `A_ROWTIME`, `__R`.`c0` AS `B_TAIL`, `__R`.`c1` AS `B_MAKER`, `__R`.`c2` AS `B_ROWTIME`, `__ROWTIME` AS `ROWTIME`, `__ORDER`, (`__LEFT` IS NOT NULL AND `__RIGHT` IS NOT NULL) AS `__PRESENT` FROM (SELECT *, from_json(`__LEFT`, 'STRUCT<c0: STRING, c1: STRING, c2: BIGINT, c3: BIGINT>') AS `__L`, from_json(`__RIGHT`, 'STRUCT<c0: STRING, c1: STRING, c2: BIGINT>') AS `__R`, from_json(`__ID`, 'STRUCT<c0: STRING>') AS `__I` FROM `T_7__J1`)))

CREATE STREAM s AS SELECT a.tail, b.maker FROM flights a JOIN planes b ON a.tail = b.tail;
----
STREAM S: `A_TAIL` STRING KEY, `MAKER` STRING
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None; planes as S_7__IN1, watermark None
SELECT * FROM (SELECT *, `A_TAIL` AS `ROWKEY`, timestamp_millis(`ROWTIME`) AS `__TS` FROM (SELECT `__L`.`c0` AS `A_TAIL`, `__L`.`c1` AS `A_CARRIER`, `__L`.`c2` AS `A_DELAY`, `__L`.`c3` AS `A_SEATS`, `__L`.`c4` AS `A_MILES`, `__L`.`c5` AS `A_FARE`, `__L`.`c6` AS `A_DAY`, `__L`.`c7` AS `A_AT`, `__L`.`c8` AS `A_TAGS`, `__L`.`c9` AS `A_INFO`, `__L`.`c10` AS `A_ROWTIME`, `__L`.`c11` AS `ROWTIME`, `__R`.`c0` AS `B_TAIL`, `__R`.`c1` AS `B_MAKER`, `__R`.`c2` AS `B_ROWTIME`, `__ORDER`, (true) AS `__PRESENT` FROM (SELECT *, from_json(`__LEFT`, 'STRUCT<c0: STRING, c1: STRING, c2: DOUBLE, c3: INT, c4: BIGINT, c5: DECIMAL(6, 2), c6: DATE, c7: TIMESTAMP, c8: ARRAY<STRING>, c9: STRUCT<`X`: INT, `Y`: STRING>, c10: BIGINT, c11: BIGINT>') AS `__L`, from_json(`__RIGHT`, 'STRUCT<c0: STRING, c1: STRING, c2: BIGINT>') AS `__R` FROM `S_7__J0` WHERE `__RIGHT` IS NOT NULL)))

CREATE STREAM s AS SELECT a.tail, b.maker FROM planes b JOIN flights a ON a.tail = b.tail;
----
! 40001 1:62 Invalid join order: table-stream joins are not supported; only stream-table joins. Got PLANES [INNER] JOIN FLIGHTS.

# A star of one source keeps its prefix.
CREATE STREAM s AS SELECT a.tail, p.* FROM flights a JOIN planes p ON a.tail = p.tail;
----
STREAM S: `A_TAIL` STRING KEY, `P_TAIL` STRING, `P_MAKER` STRING
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None; planes as S_7__IN1, watermark None
SELECT * FROM (SELECT *, `A_TAIL` AS `ROWKEY`, timestamp_millis(`ROWTIME`) AS `__TS` FROM (SELECT `__L`.`c0` AS `A_TAIL`, `__L`.`c1` AS `A_CARRIER`, `__L`.`c2` AS `A_DELAY`, `__L`.`c3` AS `A_SEATS`, `__L`.`c4` AS `A_MILES`, `__L`.`c5` AS `A_FARE`, `__L`.`c6` AS `A_DAY`, `__L`.`c7` AS `A_AT`, `__L`.`c8` AS `A_TAGS`, `__L`.`c9` AS `A_INFO`, `__L`.`c10` AS `A_ROWTIME`, `__L`.`c11` AS `ROWTIME`, `__R`.`c0` AS `P_TAIL`, `__R`.`c1` AS `P_MAKER`, `__R`.`c2` AS `P_ROWTIME`, `__ORDER`, (true) AS `__PRESENT` FROM (SELECT *, from_json(`__LEFT`, 'STRUCT<c0: STRING, c1: STRING, c2: DOUBLE, c3: INT, c4: BIGINT, c5: DECIMAL(6, 2), c6: DATE, c7: TIMESTAMP, c8: ARRAY<STRING>, c9: STRUCT<`X`: INT, `Y`: STRING>, c10: BIGINT, c11: BIGINT>') AS `__L`, from_json(`__RIGHT`, 'STRUCT<c0: STRING, c1: STRING, c2: BIGINT>') AS `__R` FROM `S_7__J0` WHERE `__RIGHT` IS NOT NULL)))

# A column that several sources have, of a source that is not there (found by `make fuzz`).
CREATE STREAM s AS SELECT x.tail, p.* FROM flights a JOIN planes p ON a.tail = p.tail;
----
! 40001 1:27 'X' is not a valid stream/table name or alias.

# Each source once.
CREATE STREAM s AS SELECT a.tail, b.delay FROM flights a JOIN flights b WITHIN 1 MINUTE ON a.tail = b.tail;
----
! 40001 1:63 Can not join 'FLIGHTS' to 'FLIGHTS': self joins are not yet supported.
!   Declare another stream over its topic, and join that.

CREATE TABLE t AS SELECT a.tail, b.maker FROM planes a JOIN fleet f ON a.tail = f.tail JOIN planes b ON a.tail = b.tail;
----
! 40001 1:93 N-way joins do not support multiple occurrences of the same source. Source: 'PLANES'.
!   Declare another table over its topic, and join that.

CREATE STREAM s AS SELECT x.tail, x.delay FROM flights x JOIN departures x WITHIN 1 MINUTE ON x.tail = x.tail;
----
! 40001 1:63 Two sources of the join have the alias 'X'.

# The key of the result, by the joins that come before the last.
CREATE STREAM s AS SELECT a.delay FROM flights a JOIN departures b WITHIN 1 HOUR ON a.tail = b.tail JOIN planes p ON b.tail = p.tail;
----
! 40001 1:20 Key missing from projection (ie, SELECT).
!   The query used to build `S` must include the join expressions A.TAIL, B.TAIL or P.TAIL in its projection (eg, SELECT A.TAIL...).

CREATE STREAM s AS SELECT a.delay FROM flights a FULL JOIN departures b WITHIN 1 HOUR ON a.tail = b.tail JOIN planes p ON a.tail = p.tail;
----
! 40001 1:20 Key missing from projection (ie, SELECT).
!   The query used to build `S` must include the join expressions A.TAIL or P.TAIL in its projection (eg, SELECT A.TAIL...).

CREATE STREAM s AS SELECT a.delay FROM flights a JOIN departures b WITHIN 1 HOUR ON a.tail = b.tail JOIN planes p ON LCASE(b.tail) = LCASE(p.tail);
----
! 40001 1:106 Invalid join condition: stream-table joins require to join on the table's primary key. Got LCASE(B.TAIL) = LCASE(P.TAIL).

CREATE TABLE t AS SELECT f.tail, p.maker FROM planes p FULL JOIN fleet f ON p.tail = f.tail;
----
! 40001 1:19 Key missing from projection (ie, SELECT). See https://cnfl.io/2LV7ouS.
!   The query used to build `T` must include the join expression ROWKEY in its projection (eg, SELECT ROWKEY...).
!   ROWKEY was added as a synthetic key column because the join criteria did not match any source column. This expression must be included in the projection and may be aliased.

# Which sources the halves of ON are over.
CREATE STREAM s AS SELECT a.tail FROM flights a JOIN departures b WITHIN 1 HOUR ON a.tail = b.tail JOIN planes p ON a.tail = b.tail;
----
! 40001 1:117 A join criteria is expected to reference the source (`P`) in the FROM clause, instead the right source references `B` and the left source references `A`.

CREATE STREAM s AS SELECT a.tail FROM flights a JOIN departures b WITHIN 1 HOUR ON a.tail = p.tail JOIN planes p ON a.tail = b.tail;
----
! 40001 1:93 Line: 1, Col: 93: JOIN ON column 'P.TAIL' cannot be resolved.

CREATE STREAM s AS SELECT a.tail FROM flights a JOIN departures b WITHIN 1 HOUR ON a.tail = a.carrier;
----
! 40001 1:84 Each side of the join must reference exactly one source and not the same source. Left side references `A` and right references `A`

CREATE STREAM s AS SELECT a.tail FROM flights a JOIN departures b WITHIN 1 HOUR ON a.nope = b.tail;
----
! 40001 1:84 Line: 1, Col: 84: JOIN ON column 'A.NOPE' cannot be resolved.

# Two columns of one name, one of them the key.
CREATE STREAM s AS SELECT a.tail AS k, b.tail AS k, a.delay FROM flights a JOIN departures b WITHIN 1 HOUR ON a.tail = b.tail;
----
! 40001 1:20 Value columns clash with key columns: `K`

# The pseudo columns of each side: named ones, and those of * after PARTITION BY.
CREATE STREAM s AS SELECT f.tail, f.rowpartition AS p, p.rowoffset AS o FROM flights f LEFT JOIN planes p ON f.tail = p.tail;
----
STREAM S: `F_TAIL` STRING KEY, `P` INTEGER, `O` BIGINT
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None; planes as S_7__IN1, watermark None
SELECT * FROM (SELECT *, `F_TAIL` AS `ROWKEY`, timestamp_millis(`ROWTIME`) AS `__TS` FROM (SELECT `__L`.`c0` AS `F_TAIL`, `__L`.`c1` AS `F_CARRIER`, `__L`.`c2` AS `F_DELAY`, `__L`.`c3` AS `F_SEATS`, `__L`.`c4` AS `F_MILES`, `__L`.`c5` AS `F_FARE`, `__L`.`c6` AS `F_DAY`, `__L`.`c7` AS `F_AT`, `__L`.`c8` AS `F_TAGS`, `__L`.`c9` AS `F_INFO`, `__L`.`c10` AS `F_ROWPARTITION`, `__L`.`c11` AS `F_ROWOFFSET`, `__L`.`c12` AS `F_ROWTIME`, `__L`.`c13` AS `ROWTIME`, `__R`.`c0` AS `P_TAIL`, `__R`.`c1` AS `P_MAKER`, `__R`.`c2` AS `P_ROWPARTITION`, `__R`.`c3` AS `P_ROWOFFSET`, `__R`.`c4` AS `P_ROWTIME`, `__ORDER`, (true) AS `__PRESENT` FROM (SELECT *, from_json(`__LEFT`, 'STRUCT<c0: STRING, c1: STRING, c2: DOUBLE, c3: INT, c4: BIGINT, c5: DECIMAL(6, 2), c6: DATE, c7: TIMESTAMP, c8: ARRAY<STRING>, c9: STRUCT<`X`: INT, `Y`: STRING>, c10: INT, c11: BIGINT, c12: BIGINT, c13: BIGINT>') AS `__L`, from_json(`__RIGHT`, 'STRUCT<c0: STRING, c1: STRING, c2: INT, c3: BIGINT, c4: BIGINT>') AS `__R` FROM `S_7__J0`)))

CREATE STREAM s AS SELECT * FROM departures d JOIN planes p ON d.tail = p.tail PARTITION BY d.carrier;
----
STREAM S: `D_CARRIER` STRING KEY, `D_DELAY` DOUBLE, `D_SEATS` INTEGER, `D_ROWTIME` BIGINT, `D_ROWPARTITION` INTEGER, `D_ROWOFFSET` BIGINT, `D_TAIL` STRING, `P_MAKER` STRING, `P_ROWTIME` BIGINT, `P_ROWPARTITION` INTEGER, `P_ROWOFFSET` BIGINT, `P_TAIL` STRING
topic S x 4, KAFKA → JSON
CSAS_S_7 reads departures as S_7__IN0, watermark None; planes as S_7__IN1, watermark None
SELECT * FROM (SELECT *, `D_TAIL` AS `ROWKEY`, timestamp_millis(`ROWTIME`) AS `__TS` FROM (SELECT `__L`.`c0` AS `D_TAIL`, `__L`.`c1` AS `D_CARRIER`, `__L`.`c2` AS `D_DELAY`, `__L`.`c3` AS `D_SEATS`, `__L`.`c4` AS `D_ROWPARTITION`, `__L`.`c5` AS `D_ROWOFFSET`, `__L`.`c6` AS `D_ROWTIME`, `__L`.`c7` AS `ROWTIME`, `__R`.`c0` AS `P_TAIL`, `__R`.`c1` AS `P_MAKER`, `__R`.`c2` AS `P_ROWPARTITION`, `__R`.`c3` AS `P_ROWOFFSET`, `__R`.`c4` AS `P_ROWTIME`, `__ORDER`, (true) AS `__PRESENT` FROM (SELECT *, from_json(`__LEFT`, 'STRUCT<c0: STRING, c1: STRING, c2: DOUBLE, c3: INT, c4: INT, c5: BIGINT, c6: BIGINT, c7: BIGINT>') AS `__L`, from_json(`__RIGHT`, 'STRUCT<c0: STRING, c1: STRING, c2: INT, c3: BIGINT, c4: BIGINT>') AS `__R` FROM `S_7__J0` WHERE `__RIGHT` IS NOT NULL)))

CREATE TABLE t AS SELECT f.tail, p.rowoffset AS o FROM fleet f JOIN planes p ON f.tail = p.tail;
----
! 40001 1:34 P.ROWOFFSET: a row of joined tables is made of several records, and has no position.

# What a stream was joined with is a stream: a further table is joined on its primary key, which is
# no foreign key of a table.
CREATE STREAM s AS SELECT * FROM flights f LEFT JOIN planes p ON f.tail = p.tail LEFT JOIN fleet x ON p.maker = x.tail;
----
STREAM S: `P_MAKER` STRING KEY, `F_TAIL` STRING, `F_CARRIER` STRING, `F_DELAY` DOUBLE, `F_SEATS` INTEGER, `F_MILES` BIGINT, `F_FARE` DECIMAL(6, 2), `F_DAY` DATE, `F_AT` TIMESTAMP, `F_TAGS` ARRAY<STRING>, `F_INFO` STRUCT<`X` INTEGER, `Y` STRING>, `P_TAIL` STRING, `X_TAIL` STRING, `X_MAKER` STRING
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None; planes as S_7__IN1, watermark None; fleet as S_7__IN2, watermark None
SELECT * FROM (SELECT *, `P_MAKER` AS `ROWKEY`, timestamp_millis(`ROWTIME`) AS `__TS` FROM (SELECT `__L`.`c0` AS `F_TAIL`, `__L`.`c1` AS `F_CARRIER`, `__L`.`c2` AS `F_DELAY`, `__L`.`c3` AS `F_SEATS`, `__L`.`c4` AS `F_MILES`, `__L`.`c5` AS `F_FARE`, `__L`.`c6` AS `F_DAY`, `__L`.`c7` AS `F_AT`, `__L`.`c8` AS `F_TAGS`, `__L`.`c9` AS `F_INFO`, `__L`.`c10` AS `F_ROWTIME`, `__L`.`c11` AS `P_TAIL`, `__L`.`c12` AS `P_MAKER`, `__L`.`c13` AS `P_ROWTIME`, `__L`.`c14` AS `ROWTIME`, `__R`.`c0` AS `X_TAIL`, `__R`.`c1` AS `X_MAKER`, `__R`.`c2` AS `X_ROWTIME`, `__ORDER`, (true) AS `__PRESENT` FROM (SELECT *, from_json(`__LEFT`, 'STRUCT<c0: STRING, c1: STRING, c2: DOUBLE, c3: INT, c4: BIGINT, c5: DECIMAL(6, 2), c6: DATE, c7: TIMESTAMP, c8: ARRAY<STRING>, c9: STRUCT<`X`: INT, `Y`: STRING>, c10: BIGINT, c11: STRING, c12: STRING, c13: BIGINT, c14: BIGINT>') AS `__L`, from_json(`__RIGHT`, 'STRUCT<c0: STRING, c1: STRING, c2: BIGINT>') AS `__R` FROM `S_7__J1`)))

CREATE STREAM s AS SELECT p.maker, x.maker AS other, f.delay FROM flights f LEFT JOIN planes p ON f.tail = p.tail LEFT JOIN fleet x ON p.maker = x.tail;
----
STREAM S: `P_MAKER` STRING KEY, `OTHER` STRING, `DELAY` DOUBLE
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None; planes as S_7__IN1, watermark None; fleet as S_7__IN2, watermark None
SELECT * FROM (SELECT *, `P_MAKER` AS `ROWKEY`, timestamp_millis(`ROWTIME`) AS `__TS` FROM (SELECT `__L`.`c0` AS `F_TAIL`, `__L`.`c1` AS `F_CARRIER`, `__L`.`c2` AS `F_DELAY`, `__L`.`c3` AS `F_SEATS`, `__L`.`c4` AS `F_MILES`, `__L`.`c5` AS `F_FARE`, `__L`.`c6` AS `F_DAY`, `__L`.`c7` AS `F_AT`, `__L`.`c8` AS `F_TAGS`, `__L`.`c9` AS `F_INFO`, `__L`.`c10` AS `F_ROWTIME`, `__L`.`c11` AS `P_TAIL`, `__L`.`c12` AS `P_MAKER`, `__L`.`c13` AS `P_ROWTIME`, `__L`.`c14` AS `ROWTIME`, `__R`.`c0` AS `X_TAIL`, `__R`.`c1` AS `X_MAKER`, `__R`.`c2` AS `X_ROWTIME`, `__ORDER`, (true) AS `__PRESENT` FROM (SELECT *, from_json(`__LEFT`, 'STRUCT<c0: STRING, c1: STRING, c2: DOUBLE, c3: INT, c4: BIGINT, c5: DECIMAL(6, 2), c6: DATE, c7: TIMESTAMP, c8: ARRAY<STRING>, c9: STRUCT<`X`: INT, `Y`: STRING>, c10: BIGINT, c11: STRING, c12: STRING, c13: BIGINT, c14: BIGINT>') AS `__L`, from_json(`__RIGHT`, 'STRUCT<c0: STRING, c1: STRING, c2: BIGINT>') AS `__R` FROM `S_7__J1`)))

CREATE STREAM s AS SELECT f.tail, x.maker AS other FROM flights f LEFT JOIN planes p ON f.tail = p.tail LEFT JOIN fleet x ON p.maker = x.tail;
----
! 40001 1:20 Key missing from projection (ie, SELECT).
!   The query used to build `S` must include the join expressions P.MAKER or X.TAIL in its projection (eg, SELECT P.MAKER...).

# A new key that is no column comes first, a synthetic key of the join last.
CREATE STREAM s AS SELECT * FROM departures d JOIN planes p ON UCASE(d.tail) = p.tail PARTITION BY LEN(d.carrier);
----
STREAM S: `KSQL_COL_0` INTEGER KEY, `D_CARRIER` STRING, `D_DELAY` DOUBLE, `D_SEATS` INTEGER, `D_ROWTIME` BIGINT, `D_ROWPARTITION` INTEGER, `D_ROWOFFSET` BIGINT, `D_TAIL` STRING, `P_MAKER` STRING, `P_ROWTIME` BIGINT, `P_ROWPARTITION` INTEGER, `P_ROWOFFSET` BIGINT, `P_TAIL` STRING
topic S x 4, KAFKA → JSON
CSAS_S_7 reads departures as S_7__IN0, watermark None; planes as S_7__IN1, watermark None
SELECT * FROM (SELECT *, upper(`D_TAIL`) AS `ROWKEY`, timestamp_millis(`ROWTIME`) AS `__TS` FROM (SELECT `__L`.`c0` AS `D_TAIL`, `__L`.`c1` AS `D_CARRIER`, `__L`.`c2` AS `D_DELAY`, `__L`.`c3` AS `D_SEATS`, `__L`.`c4` AS `D_ROWPARTITION`, `__L`.`c5` AS `D_ROWOFFSET`, `__L`.`c6` AS `D_ROWTIME`, `__L`.`c7` AS `ROWTIME`, `__R`.`c0` AS `P_TAIL`, `__R`.`c1` AS `P_MAKER`, `__R`.`c2` AS `P_ROWPARTITION`, `__R`.`c3` AS `P_ROWOFFSET`, `__R`.`c4` AS `P_ROWTIME`, `__ORDER`, (true) AS `__PRESENT` FROM (SELECT *, from_json(`__LEFT`, 'STRUCT<c0: STRING, c1: STRING, c2: DOUBLE, c3: INT, c4: INT, c5: BIGINT, c6: BIGINT, c7: BIGINT>') AS `__L`, from_json(`__RIGHT`, 'STRUCT<c0: STRING, c1: STRING, c2: INT, c3: BIGINT, c4: BIGINT>') AS `__R` FROM `S_7__J0` WHERE `__RIGHT` IS NOT NULL)))

CREATE STREAM s AS SELECT * FROM departures a FULL JOIN flights b WITHIN 1 HOUR ON a.tail = b.tail PARTITION BY a.carrier;
----
STREAM S: `A_CARRIER` STRING KEY, `A_DELAY` DOUBLE, `A_SEATS` INTEGER, `A_ROWTIME` BIGINT, `A_ROWPARTITION` INTEGER, `A_ROWOFFSET` BIGINT, `A_TAIL` STRING, `B_CARRIER` STRING, `B_DELAY` DOUBLE, `B_SEATS` INTEGER, `B_MILES` BIGINT, `B_FARE` DECIMAL(6, 2), `B_DAY` DATE, `B_AT` TIMESTAMP, `B_TAGS` ARRAY<STRING>, `B_INFO` STRUCT<`X` INTEGER, `Y` STRING>, `B_ROWTIME` BIGINT, `B_ROWPARTITION` INTEGER, `B_ROWOFFSET` BIGINT, `B_TAIL` STRING, `ROWKEY` STRING
topic S x 4, KAFKA → JSON
CSAS_S_7 reads departures as S_7__IN0, watermark 86400000; flights as S_7__IN1, watermark 86400000
SELECT * FROM (SELECT *, coalesce(`A_TAIL`, `B_TAIL`) AS `ROWKEY`, timestamp_millis(`ROWTIME`) AS `__TS` FROM (SELECT `__L`.`c0` AS `A_TAIL`, `__L`.`c1` AS `A_CARRIER`, `__L`.`c2` AS `A_DELAY`, `__L`.`c3` AS `A_SEATS`, `__L`.`c4` AS `A_ROWPARTITION`, `__L`.`c5` AS `A_ROWOFFSET`, `__L`.`c6` AS `A_ROWTIME`, `__R`.`c0` AS `B_TAIL`, `__R`.`c1` AS `B_CARRIER`, `__R`.`c2` AS `B_DELAY`, `__R`.`c3` AS `B_SEATS`, `__R`.`c4` AS `B_MILES`, `__R`.`c5` AS `B_FARE`, `__R`.`c6` AS `B_DAY`, `__R`.`c7` AS `B_AT`, `__R`.`c8` AS `B_TAGS`, `__R`.`c9` AS `B_INFO`, `__R`.`c10` AS `B_ROWPARTITION`, `__R`.`c11` AS `B_ROWOFFSET`, `__R`.`c12` AS `B_ROWTIME`, `__ROWTIME` AS `ROWTIME`, `__ORDER`, (true) AS `__PRESENT` FROM (SELECT *, from_json(`__LEFT`, 'STRUCT<c0: STRING, c1: STRING, c2: DOUBLE, c3: INT, c4: INT, c5: BIGINT, c6: BIGINT, c7: BIGINT>') AS `__L`, from_json(`__RIGHT`, 'STRUCT<c0: STRING, c1: STRING, c2: DOUBLE, c3: INT, c4: BIGINT, c5: DECIMAL(6, 2), c6: DATE, c7: TIMESTAMP, c8: ARRAY<STRING>, c9: STRUCT<`X`: INT, `Y`: STRING>, c10: INT, c11: BIGINT, c12: BIGINT>') AS `__R` FROM `S_7__J0`)))

# Two equalities are refused by name, more are no expression of a join.
CREATE STREAM s AS SELECT a.tail FROM flights a JOIN departures b WITHIN 1 HOUR ON a.tail = b.tail AND a.carrier = b.carrier AND a.seats = b.seats;
----
! 40001 1:84 Unsupported join expression: (((A.TAIL = B.TAIL) AND (A.CARRIER = B.CARRIER)) AND (A.SEATS = B.SEATS))
!   Join on one STRUCT of all columns: STRUCT(A:=L.A, B:=L.B) = STRUCT(A:=R.A, B:=R.B).

# An alias replaces the name of its source, in the condition, too.
CREATE STREAM s AS SELECT a.tail, departures.delay FROM flights a JOIN departures b WITHIN 1 HOUR ON a.tail = b.tail;
----
! 40001 1:35 Line: 1, Col: 35: SELECT column 'DEPARTURES.DELAY' cannot be resolved.
!   Write B.DELAY: an alias replaces the name.

CREATE STREAM s AS SELECT a.tail FROM flights a JOIN departures b WITHIN 1 HOUR ON flights.tail = b.tail;
----
! 40001 1:84 Line: 1, Col: 84: JOIN ON column 'FLIGHTS.TAIL' cannot be resolved.
!   Write A.TAIL: an alias replaces the name.

CREATE STREAM s AS SELECT a.tail, departures.* FROM flights a JOIN departures b WITHIN 1 HOUR ON a.tail = b.tail;
----
! 40001 1:35 'DEPARTURES' is not a valid stream/table name or alias.
