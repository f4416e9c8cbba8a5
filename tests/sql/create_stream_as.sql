# A row for each row: the key is the source's.
CREATE STREAM s AS SELECT tail, delay * 2 AS twice FROM flights WHERE seats > 3;
----
STREAM S: `TAIL` STRING KEY, `TWICE` DOUBLE
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, (`DELAY` * (2.0D)) AS `TWICE`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0` WHERE `__PRESENT` AND coalesce(`SEATS` > (3), false)

# The key must be there, once.
CREATE STREAM s AS SELECT delay FROM flights;
----
! 40001 1:20 Key missing from projection (ie, SELECT).
!   The query used to build `S` must include the key column TAIL in its projection (eg, SELECT TAIL...).

# A format of keys cannot be given where the statement takes the key away.
CREATE STREAM s WITH (KEY_FORMAT='JSON') AS SELECT tail, delay FROM flights PARTITION BY NULL;
----
! 40001 1:23 Key format specified for stream without key columns.

CREATE STREAM s WITH (FORMAT='JSON') AS SELECT tail, delay FROM flights PARTITION BY NULL;
----
! 40001 1:23 Key format specified for stream without key columns.

CREATE STREAM s AS SELECT tail, tail AS again, delay FROM flights;
----
! 40001 1:20 The projection contains a key column (`TAIL`) more than once, aliased as: AGAIN and TAIL.
!   Each key column must only be in the projection once. If you intended to copy the key into the value, then consider using the AS_VALUE function to indicate which key reference should be copied.

# Its query alone writes a topic; a second query may add rows to the stream.
CREATE STREAM s WITH (KAFKA_TOPIC='flights') AS SELECT tail, delay FROM flights;
----
! 40001 1:23 Topic 'flights' already belongs to STREAM FLIGHTS.
!   INSERT INTO FLIGHTS SELECT … adds rows to it.

# PARTITION BY makes another key; a star has what was the key before at its end.
CREATE STREAM s AS SELECT * FROM flights PARTITION BY carrier;
----
STREAM S: `CARRIER` STRING KEY, `DELAY` DOUBLE, `SEATS` INTEGER, `MILES` BIGINT, `FARE` DECIMAL(6, 2), `DAY` DATE, `AT` TIMESTAMP, `TAGS` ARRAY<STRING>, `INFO` STRUCT<`X` INTEGER, `Y` STRING>, `TAIL` STRING
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `CARRIER` AS `CARRIER`, `DELAY` AS `DELAY`, `SEATS` AS `SEATS`, `MILES` AS `MILES`, `FARE` AS `FARE`, `DAY` AS `DAY`, `AT` AS `AT`, `TAGS` AS `TAGS`, `INFO` AS `INFO`, `TAIL` AS `TAIL`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

CREATE STREAM s AS SELECT * FROM flights PARTITION BY seats + 1;
----
STREAM S: `KSQL_COL_0` INTEGER KEY, `CARRIER` STRING, `DELAY` DOUBLE, `SEATS` INTEGER, `MILES` BIGINT, `FARE` DECIMAL(6, 2), `DAY` DATE, `AT` TIMESTAMP, `TAGS` ARRAY<STRING>, `INFO` STRUCT<`X` INTEGER, `Y` STRING>, `TAIL` STRING
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT (`SEATS` + (1)) AS `KSQL_COL_0`, `CARRIER` AS `CARRIER`, `DELAY` AS `DELAY`, `SEATS` AS `SEATS`, `MILES` AS `MILES`, `FARE` AS `FARE`, `DAY` AS `DAY`, `AT` AS `AT`, `TAGS` AS `TAGS`, `INFO` AS `INFO`, `TAIL` AS `TAIL`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

CREATE STREAM s AS SELECT tail, delay FROM flights PARTITION BY carrier;
----
! 40001 1:20 Key missing from projection (ie, SELECT).
!   The query used to build `S` must include the partitioning expression FLIGHTS.CARRIER in its projection (eg, SELECT FLIGHTS.CARRIER...).

CREATE STREAM s AS SELECT delay FROM flights PARTITION BY NULL;
----
STREAM S: `DELAY` DOUBLE
topic S x 4, NONE → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `DELAY` AS `DELAY`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

# EXPLODE: several walk side by side.
CREATE STREAM s AS SELECT tail, EXPLODE(tags) AS tag, EXPLODE(ARRAY[1, 2]) AS n FROM flights;
----
STREAM S: `TAIL` STRING KEY, `TAG` STRING, `N` INTEGER
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, `__E0` AS `TAG`, cast(`__E1` AS INT) AS `N`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM (SELECT * EXCEPT (`__Z`), `__Z`.`__E0` AS `__E0`, `__Z`.`__E1` AS `__E1` FROM (SELECT * EXCEPT (`__E0`, `__E1`), explode(arrays_zip(`__E0`, `__E1`)) AS `__Z` FROM (SELECT *, coalesce(`TAGS`, array()) AS `__E0`, coalesce(array((1), (2)), array()) AS `__E1` FROM `S_7__IN0`)))

CREATE STREAM s AS SELECT tail, delay FROM flights WHERE EXPLODE(tags) = 'x';
----
! 40001 1:58 WHERE does not support table functions: EXPLODE is a table function.

# Constructors, lambdas, structs.
CREATE STREAM s AS SELECT tail, info->*, TRANSFORM(tags, x => UCASE(x)) AS up FROM flights;
----
STREAM S: `TAIL` STRING KEY, `X` INTEGER, `Y` STRING, `UP` ARRAY<STRING>
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, `INFO`.`X` AS `X`, `INFO`.`Y` AS `Y`, transform(`TAGS`, `X` -> upper(`X`)) AS `UP`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

CREATE STREAM s AS SELECT tail, REDUCE(tags, '', (s, x) => s + x) AS joined FROM flights;
----
STREAM S: `TAIL` STRING KEY, `JOINED` STRING
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, if(`TAGS` IS NULL, '', aggregate(`TAGS`, named_struct('f', false, 'v', ''), (`S`, `X`) -> if(`S`.`f` OR (element_at(transform(array(struct(`S`.`v` AS `a0`)), `standpipe_bound` -> if(0L + coalesce(length(`standpipe_bound`.`a0`), 0) + coalesce(length(`X`), 0) > 4194304, NULL, concat(coalesce(`standpipe_bound`.`a0`, 'null'), coalesce(`X`, 'null')))), 1) IS NULL), named_struct('f', true, 'v', cast(NULL AS STRING)), named_struct('f', false, 'v', element_at(transform(array(struct(`S`.`v` AS `a0`)), `standpipe_bound` -> if(0L + coalesce(length(`standpipe_bound`.`a0`), 0) + coalesce(length(`X`), 0) > 4194304, NULL, concat(coalesce(`standpipe_bound`.`a0`, 'null'), coalesce(`X`, 'null')))), 1))), `S` -> `S`.`v`)) AS `JOINED`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

# A stream is no table, a table no stream.
CREATE TABLE t AS SELECT tail, delay FROM flights;
----
! 40001 1:14 Invalid result type. Your SELECT query produces a STREAM. Please use CREATE STREAM AS SELECT statement instead.

CREATE STREAM s AS SELECT tail, COUNT(*) AS n FROM flights GROUP BY tail;
----
! 40001 1:15 Invalid result type. Your SELECT query produces a TABLE. Please use CREATE TABLE AS SELECT statement instead.

# A table's filter deletes what it does not let in.
CREATE TABLE t AS SELECT tail, maker FROM planes WHERE maker = 'x';
----
TABLE T: `TAIL` STRING KEY, `MAKER` STRING
topic T x 4, KAFKA → JSON
CTAS_T_7 reads planes as T_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, `MAKER` AS `MAKER`, `ROWTIME` AS `__ROWTIME`, (`__PRESENT` AND coalesce(coalesce(`MAKER` = 'x', false), false)) AS `__LIVE` FROM `T_7__IN0`

CREATE STREAM s AS SELECT tail, delay FROM flights LIMIT 3;
----
! 40001 1:20 CREATE STREAM AS SELECT statements don't support LIMIT clause.

# ROWTIME from a column.
CREATE STREAM s WITH (TIMESTAMP='miles') AS SELECT tail, miles FROM flights;
----
STREAM S: `TAIL` STRING KEY, `MILES` BIGINT
topic S x 4, KAFKA → JSON
time from MILES
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT * FROM (SELECT `TAIL` AS `TAIL`, `MILES` AS `MILES`, `MILES` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`) WHERE `__ROWTIME` >= 0 OR NOT `__LIVE`

# Arithmetic that meets a null makes the whole lambda fail, which is null.
CREATE STREAM s AS SELECT tail, TRANSFORM(tags, x => LEN(x) + 1) AS lens FROM flights;
----
STREAM S: `TAIL` STRING KEY, `LENS` ARRAY<INTEGER>
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, if(exists(`TAGS`, `X` -> (((cast(shiftright(octet_length(encode(`X`, 'UTF-16BE')), 1) AS INT) + (1)) IS NULL))), NULL, transform(`TAGS`, `X` -> (cast(shiftright(octet_length(encode(`X`, 'UTF-16BE')), 1) AS INT) + (1)))) AS `LENS`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

# Two entries of one key as well.
CREATE STREAM s AS SELECT tail, TRANSFORM(MAP('a' := seats), (k, v) => UCASE(k), (k, v) => v) AS m FROM flights;
----
STREAM S: `TAIL` STRING KEY, `M` MAP<STRING, INTEGER>
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, transform(array(transform(map_entries(map('a', `SEATS`)), `__E` -> named_struct('k', upper(`__E`.`key`), 'v', `__E`.`value`))), m -> if(size(array_distinct(filter(transform(m, e -> e.k), k -> k IS NOT NULL))) < size(m) OR exists(m, e -> e.v IS NULL), NULL, map_from_entries(m)))[0] AS `M`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

# Spark compares no maps: their texts are compared.
CREATE STREAM s AS SELECT tail, ARRAY_DISTINCT(ARRAY[MAP('a' := seats)]) AS m FROM flights;
----
STREAM S: `TAIL` STRING KEY, `M` ARRAY<MAP<STRING, INTEGER>>
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, filter(array(map('a', `SEATS`)), (e, i) -> array_position(transform(array(map('a', `SEATS`)), m -> coalesce(to_json(array_sort(transform(map_entries(m), e -> struct(e.key AS k, e.value AS v)), (l, r) -> CASE WHEN l.k < r.k THEN -1 WHEN l.k > r.k THEN 1 ELSE 0 END), map('ignoreNullFields', 'false')), '')), element_at(transform(array(map('a', `SEATS`)), m -> coalesce(to_json(array_sort(transform(map_entries(m), e -> struct(e.key AS k, e.value AS v)), (l, r) -> CASE WHEN l.k < r.k THEN -1 WHEN l.k > r.k THEN 1 ELSE 0 END), map('ignoreNullFields', 'false')), '')), i + 1)) = i + 1) AS `M`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

CREATE STREAM s AS SELECT tail, ARRAY_REMOVE(ARRAY[MAP('a' := seats)], MAP('a' := 1)) AS m FROM flights;
----
STREAM S: `TAIL` STRING KEY, `M` ARRAY<MAP<STRING, INTEGER>>
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, filter(array(map('a', `SEATS`)), (e, i) -> element_at(transform(array(map('a', `SEATS`)), m -> coalesce(to_json(array_sort(transform(map_entries(m), e -> struct(e.key AS k, e.value AS v)), (l, r) -> CASE WHEN l.k < r.k THEN -1 WHEN l.k > r.k THEN 1 ELSE 0 END), map('ignoreNullFields', 'false')), '')), i + 1) <> coalesce(to_json(array_sort(transform(map_entries(map('a', (1))), e -> struct(e.key AS k, e.value AS v)), (l, r) -> CASE WHEN l.k < r.k THEN -1 WHEN l.k > r.k THEN 1 ELSE 0 END), map('ignoreNullFields', 'false')), '')) AS `M`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

# Key columns stand in the order of the list.
CREATE TABLE t AS SELECT seats, n, carrier FROM by_two;
----
TABLE T: `CARRIER` STRING KEY, `SEATS` INTEGER KEY, `N` BIGINT
topic T x 4, JSON → JSON
CTAS_T_7 reads BY_TWO as T_7__IN0, watermark None
SELECT `CARRIER` AS `CARRIER`, `SEATS` AS `SEATS`, `N` AS `N`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `T_7__IN0`

# A key of several columns is there even if all of them are null.
CREATE STREAM s WITH (KEY_FORMAT='JSON') AS SELECT carrier, seats, delay FROM flights PARTITION BY carrier, seats;
----
STREAM S: `CARRIER` STRING KEY, `SEATS` INTEGER KEY, `DELAY` DOUBLE
topic S x 4, JSON → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `CARRIER` AS `CARRIER`, `SEATS` AS `SEATS`, `DELAY` AS `DELAY`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

# A STRUCT becomes JSON with its fields in the order of their names.
CREATE STREAM s AS SELECT tail, TO_JSON_STRING(STRUCT(b := seats, a := tail)) AS j FROM flights;
----
STREAM S: `TAIL` STRING KEY, `J` STRING
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, coalesce(substring(to_json(array(if(named_struct('B', `SEATS`, 'A', `TAIL`) IS NULL, NULL, struct(cast(cast(named_struct('B', `SEATS`, 'A', `TAIL`).`A` AS STRING) AS STRING) AS `A`, cast(cast(named_struct('B', `SEATS`, 'A', `TAIL`).`B` AS INT) AS INT) AS `B`))), map('ignoreNullFields', 'false', 'timestampFormat', 'yyyy-MM-dd\'T\'HH:mm:ss.SSS')), 2, length(to_json(array(if(named_struct('B', `SEATS`, 'A', `TAIL`) IS NULL, NULL, struct(cast(cast(named_struct('B', `SEATS`, 'A', `TAIL`).`A` AS STRING) AS STRING) AS `A`, cast(cast(named_struct('B', `SEATS`, 'A', `TAIL`).`B` AS INT) AS INT) AS `B`))), map('ignoreNullFields', 'false', 'timestampFormat', 'yyyy-MM-dd\'T\'HH:mm:ss.SSS'))) - 2), 'null') AS `J`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

# A lambda's parameter may hide neither a column of a source nor an outer parameter.
CREATE STREAM s AS SELECT f.tail, TRANSFORM(f.tags, maker => maker) FROM flights f JOIN planes p ON f.tail = p.tail;
----
! 40001 1:62 Lambda function argument can't be a column name: MAKER

CREATE STREAM s AS SELECT tail, TRANSFORM(tags, x => REDUCE(tags, '', (s, x) => s)) FROM flights;
----
! 40001 1:81 Reusing lambda arguments in nested lambda is not allowed

CREATE STREAM s AS SELECT tail, TRANSFORM(tags, x => x) AS a, TRANSFORM(tags, x => LEN(x)) AS b, TRANSFORM(tags, rowtime => rowtime) AS c FROM flights;
----
STREAM S: `TAIL` STRING KEY, `A` ARRAY<STRING>, `B` ARRAY<INTEGER>, `C` ARRAY<STRING>
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, transform(`TAGS`, `X` -> `X`) AS `A`, transform(`TAGS`, `X` -> cast(shiftright(octet_length(encode(`X`, 'UTF-16BE')), 1) AS INT)) AS `B`, transform(`TAGS`, `ROWTIME` -> `ROWTIME`) AS `C`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

# An ARRAY is indexed by whole numbers.
CREATE STREAM s AS SELECT tail, tags[1.5] FROM flights;
----
! 40001 1:38 An index of an ARRAY is an INTEGER, not DECIMAL(2, 1): TAGS[1.5]

CREATE STREAM s AS SELECT tail, tags[delay] FROM flights;
----
! 40001 1:38 An index of an ARRAY is an INTEGER, not DOUBLE: TAGS[DELAY]

CREATE STREAM s AS SELECT tail, tags[miles] AS t FROM flights;
----
STREAM S: `TAIL` STRING KEY, `T` STRING
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, if(cast(`MILES` AS INT) IN (0, -2147483648), NULL, try_element_at(`TAGS`, cast(`MILES` AS INT))) AS `T`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0`

# An alias replaces the name of its source.
CREATE STREAM s AS SELECT flights.tail FROM flights f;
----
! 40001 1:27 Line: 1, Col: 27: SELECT column 'FLIGHTS.TAIL' cannot be resolved.
!   Write F.TAIL: an alias replaces the name.

CREATE STREAM s AS SELECT tail, seats FROM flights f WHERE flights.seats > 1;
----
! 40001 1:60 Line: 1, Col: 60: WHERE column 'FLIGHTS.SEATS' cannot be resolved.
!   Write F.SEATS: an alias replaces the name.

CREATE STREAM s AS SELECT flights.* FROM flights AS f;
----
! 40001 1:27 'FLIGHTS' is not a valid stream/table name or alias.

CREATE STREAM s AS SELECT F.*, f.seats AS s2 FROM flights AS f WHERE f.seats > 1;
----
STREAM S: `TAIL` STRING KEY, `CARRIER` STRING, `DELAY` DOUBLE, `SEATS` INTEGER, `MILES` BIGINT, `FARE` DECIMAL(6, 2), `DAY` DATE, `AT` TIMESTAMP, `TAGS` ARRAY<STRING>, `INFO` STRUCT<`X` INTEGER, `Y` STRING>, `S2` INTEGER
topic S x 4, KAFKA → JSON
CSAS_S_7 reads flights as S_7__IN0, watermark None
SELECT `TAIL` AS `TAIL`, `CARRIER` AS `CARRIER`, `DELAY` AS `DELAY`, `SEATS` AS `SEATS`, `MILES` AS `MILES`, `FARE` AS `FARE`, `DAY` AS `DAY`, `AT` AS `AT`, `TAGS` AS `TAGS`, `INFO` AS `INFO`, `SEATS` AS `S2`, `ROWTIME` AS `__ROWTIME`, `__PRESENT` AS `__LIVE` FROM `S_7__IN0` WHERE `__PRESENT` AND coalesce(`SEATS` > (1), false)
