SELECT * FROM by_tail WHERE tail = 'N1';
----
BY_TAIL [('N1',)] → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE

SELECT * FROM by_tail WHERE 'N1' = tail;
----
BY_TAIL [('N1',)] → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE

# The article asks for ROWKEY, which names the single key column.
SELECT * FROM by_tail WHERE rowkey = 'N1';
----
BY_TAIL [('N1',)] → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE

SELECT n, rowkey, rowtime, tail AS t FROM by_tail x WHERE x.tail = 'it''s';
----
BY_TAIL [("it's",)] → (1, 0, 3, 0)
`N` BIGINT, `ROWKEY` STRING, `ROWTIME` BIGINT, `T` STRING

SELECT tail, n, worst FROM by_tail WHERE tail IN ('a', 'b', 'a') LIMIT 10;
----
BY_TAIL [('a',), ('b',)] → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE
limit 10

SELECT n, worst, tail FROM by_tail WHERE tail IN ('a', 'b', 'c') AND tail IN ('c', 'a');
----
BY_TAIL [('a',), ('c',)] → (1, 2, 0)
`N` BIGINT, `WORST` DOUBLE, `TAIL` STRING KEY

# A key takes what widens to its type, nothing else.
SELECT * FROM by_seats WHERE seats = 12;
----
BY_SEATS [(12,)] → *
`SEATS` INTEGER KEY, `N` BIGINT

SELECT * FROM by_seats WHERE seats = -12;
----
BY_SEATS [(-12,)] → *
`SEATS` INTEGER KEY, `N` BIGINT

SELECT * FROM by_seats WHERE seats = '12';
----
! 40001 1:30 Error in WHERE expression: Cannot compare SEATS (INTEGER) to '12' (STRING) with EQUAL.
!   Statement: (SEATS = '12')

SELECT * FROM by_seats WHERE seats IN (1, '12');
----
! 40001 1:43 '12' can not be converted to the type of the key column: SEATS INTEGER KEY See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_seats WHERE seats = 3000000000;
----
! 40001 1:38 '3000000000' can not be converted to the type of the key column: SEATS INTEGER KEY See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_seats WHERE seats = NULL;
----
! 40001 1:30 Error in WHERE expression: Comparison with NULL not supported: INTEGER = NULL
!   Use 'IS NULL' or 'IS NOT NULL' instead.
!   Statement: (SEATS = null)

SELECT * FROM by_seats WHERE seats IN (1, NULL);
----
! 40001 1:43 Primary key columns can not be NULL: (SEATS = null). See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_fare WHERE fare IN (5, 5.1);
----
BY_FARE [(Decimal('5.00'),), (Decimal('5.10'),)] → *
`FARE` DECIMAL(6, 2) KEY, `N` BIGINT

SELECT * FROM by_fare WHERE fare = 5.123;
----
! 40001 1:36 '5.123' can not be converted to the type of the key column: FARE DECIMAL(6, 2) KEY See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_fare WHERE fare = CAST('7.5' AS DECIMAL(6, 2));
----
BY_FARE [(Decimal('7.50'),)] → *
`FARE` DECIMAL(6, 2) KEY, `N` BIGINT

# Every column of the key must be given.
SELECT * FROM by_two WHERE carrier = 'UA' AND seats IN (1, 2);
----
BY_TWO [('UA', 1), ('UA', 2)] → *
`CARRIER` STRING KEY, `SEATS` INTEGER KEY, `N` BIGINT

SELECT * FROM by_two WHERE seats = 1;
----
BY_TWO scan filtered → *
`CARRIER` STRING KEY, `SEATS` INTEGER KEY, `N` BIGINT
and column 1 = 1 and nothing else

SELECT * FROM by_two WHERE rowkey = 1;
----
! 40001 1:28 Line: 1, Col: 28: WHERE column 'ROWKEY' cannot be resolved.

# Window bounds: numbers or text, inclusive in the plan.
SELECT * FROM by_day WHERE carrier = 'UA';
----
BY_DAY [('UA',)] → *
`CARRIER` STRING KEY, `WINDOWSTART` BIGINT KEY, `WINDOWEND` BIGINT KEY, `N` BIGINT

SELECT * FROM by_day WHERE carrier = 'UA' AND WINDOWSTART = 1000;
----
BY_DAY [('UA',)] → *
`CARRIER` STRING KEY, `WINDOWSTART` BIGINT KEY, `WINDOWEND` BIGINT KEY, `N` BIGINT
window_start_low=1000 window_start_high=1000

SELECT * FROM by_day WHERE carrier = 'UA' AND WINDOWSTART >= '2013-01-01' AND WINDOWEND < '2013-02-01T00:00:00.000';
----
BY_DAY [('UA',)] → *
`CARRIER` STRING KEY, `WINDOWSTART` BIGINT KEY, `WINDOWEND` BIGINT KEY, `N` BIGINT
window_start_low=1356998400000 window_end_high=1359676799999

SELECT * FROM by_day WHERE carrier = 'UA' AND 10 < WINDOWSTART AND 20 >= WINDOWSTART;
----
BY_DAY [('UA',)] → *
`CARRIER` STRING KEY, `WINDOWSTART` BIGINT KEY, `WINDOWEND` BIGINT KEY, `N` BIGINT
window_start_low=11 window_start_high=20

SELECT * FROM by_day WHERE carrier = 'UA' AND WINDOWSTART BETWEEN 10 AND 20;
----
BY_DAY [('UA',)] → *
`CARRIER` STRING KEY, `WINDOWSTART` BIGINT KEY, `WINDOWEND` BIGINT KEY, `N` BIGINT
window_start_low=10 window_start_high=20

SELECT WINDOWSTART AS ws, n FROM by_day WHERE carrier = 'UA';
----
BY_DAY [('UA',)] → (1, 3)
`WS` BIGINT, `N` BIGINT

SELECT * FROM by_day WHERE carrier = 'UA' AND WINDOWSTART > 1 AND WINDOWSTART >= 2;
----
! 40001 1:67 Duplicate `WINDOWSTART` bounds on: GREATER_THAN. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_day WHERE carrier = 'UA' AND WINDOWSTART > 1 AND WINDOWSTART = 2;
----
! 40001 1:67 `(WINDOWSTART = 2)` cannot be combined with other `WINDOWSTART` bounds. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_day WHERE carrier = 'UA' AND WINDOWEND = 1 AND 2 = WINDOWEND;
----
! 40001 1:65 Duplicate `WINDOWEND` bounds on: EQUAL. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_day WHERE carrier = 'UA' AND WINDOWSTART <> 1;
----
! 40001 1:47 Unsupported `WINDOWSTART` bounds: NOT_EQUAL. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.
!   WINDOWSTART takes =, <, <=, >, >=.

SELECT * FROM by_day WHERE carrier = 'UA' AND WINDOWSTART > 'yesterday';
----
! 40001 1:47 Failed to parse timestamp 'yesterday'

SELECT * FROM by_day WHERE carrier = 'UA' AND WINDOWSTART > 1.5;
----
! 40001 1:61 Window bounds must resolve to an INT, BIGINT, or STRING containing a datetime. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_day WHERE WINDOWSTART > 1;
----
BY_DAY scan filtered → *
`CARRIER` STRING KEY, `WINDOWSTART` BIGINT KEY, `WINDOWEND` BIGINT KEY, `N` BIGINT
and column 1 > 1 and nothing else

SELECT * FROM by_tail WHERE tail = 'N1' AND WINDOWSTART = 1;
----
! 40001 1:45 Line: 1, Col: 45: WHERE column 'WINDOWSTART' cannot be resolved.

# What ksqlDB would answer by a scan is refused in its words.
SELECT * FROM by_tail;
----
BY_TAIL scan → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE

SELECT * FROM by_tail WHERE n = 5;
----
BY_TAIL scan filtered → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE
and column 1 = 5 and nothing else

SELECT * FROM by_tail WHERE tail > 'a';
----
BY_TAIL scan filtered → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE
key > 'a' and nothing else

SELECT * FROM by_tail WHERE tail >= 'a' AND tail <= 'b';
----
BY_TAIL scan filtered → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE
key >= 'a' key <= 'b' and nothing else

SELECT * FROM by_tail WHERE tail <> 'a';
----
BY_TAIL scan filtered → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE
and column 0 <> a and nothing else

SELECT * FROM by_seats WHERE seats + 10 = 20;
----
BY_SEATS scan filtered → *
`SEATS` INTEGER KEY, `N` BIGINT

SELECT * FROM by_seats WHERE seats = n - 1;
----
BY_SEATS scan filtered → *
`SEATS` INTEGER KEY, `N` BIGINT

SELECT * FROM by_seats WHERE seats IN (1, n + 1);
----
BY_SEATS scan filtered → *
`SEATS` INTEGER KEY, `N` BIGINT

SELECT * FROM by_seats WHERE seats = 1 OR seats = 2;
----
BY_SEATS [(1,), (2,)] filtered → *
`SEATS` INTEGER KEY, `N` BIGINT

SELECT * FROM by_seats WHERE seats = 1 AND n > 2;
----
BY_SEATS [(1,)] filtered → *
`SEATS` INTEGER KEY, `N` BIGINT

SELECT * FROM by_tail WHERE 'N1' LIKE 'N_';
----
BY_TAIL scan filtered → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE

SELECT * FROM by_tail WHERE tail LIKE 'a%';
----
BY_TAIL scan filtered → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE

# Names.
SELECT * FROM by_tale WHERE tail = 'a';
----
! 40001 1:15 Line: 1, Col: 15: Source `BY_TALE` does not exist.
!   Did you mean BY_TAIL?

SELECT * FROM by_tail WHERE tial = 'a';
----
! 40001 1:29 Line: 1, Col: 29: WHERE column 'TIAL' cannot be resolved.
!   Did you mean TAIL?

SELECT m FROM by_tail WHERE tail = 'a';
----
! 40001 1:8 Line: 1, Col: 8: SELECT column 'M' cannot be resolved.

SELECT n, n FROM by_tail WHERE tail = 'a';
----
! 40001 1:1 Duplicate value columns found in schema: `N` BIGINT

SELECT rowoffset FROM by_tail WHERE tail = 'a';
----
! 40001 1:8 Pull queries don't support the following columns in SELECT clauses: `ROWOFFSET`. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_tail WHERE tail = 'a' AND rowpartition = 1;
----
! 40001 1:44 Pull queries don't support the following columns in WHERE clauses: `ROWPARTITION`. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT x.* FROM by_tail WHERE tail = 'a';
----
! 40001 1:8 'X' is not a valid stream/table name or alias.

SELECT n + 1 FROM by_tail WHERE tail = 'a';
----
BY_TAIL [('a',)] → computed
`KSQL_COL_0` BIGINT

# Clauses.
SELECT * FROM by_tail WHERE tail = 'a' LIMIT 0;
----
BY_TAIL [('a',)] → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE
limit 0

SELECT * FROM by_tail WHERE tail = 'a' LIMIT -1;
----
! 40001 1:47 Pull queries don't support negative integers in the LIMIT clause. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_tail WHERE tail = 'a' LIMIT 2.5;
----
! 40001 1:46 Failed to prepare statement: Value must be integer for command: LIMIT

SELECT * FROM by_tail WHERE tail = 'a' GROUP BY tail;
----
! 40001 1:1 Pull queries don't support GROUP BY clauses. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_tail a JOIN planes p ON a.tail = p.tail WHERE a.tail = 'a';
----
! 40001 1:1 Pull queries don't support JOIN clauses. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_tail WHERE tail = 'a' EMIT CHANGES;
----
push BY_TAIL filtered, keys ['TAIL']
`TAIL` STRING, `N` BIGINT, `WORST` DOUBLE

# A table without a query keeps no replicas.
SELECT * FROM planes WHERE tail = 'a';
----
! 40001 1:15 The `PLANES` table isn't queryable. To derive a queryable table, you can do 'CREATE TABLE QUERYABLE_PLANES AS SELECT * FROM PLANES'. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

# Over a stream EXPLODE makes a row for each element, …
SELECT tail, EXPLODE(tags) AS tag FROM flights WHERE seats > 3 LIMIT 2;
----
FLIGHTS scan filtered → (0, 13)
`TAIL` STRING, `TAG` STRING
limit 2

# … but not over a table.
SELECT EXPLODE(ARRAY[1]) FROM by_tail;
----
! 40001 1:1 Table source is not supported with table functions

SELECT * FROM flights;
----
FLIGHTS scan → computed
`TAIL` STRING, `CARRIER` STRING, `DELAY` DOUBLE, `SEATS` INTEGER, `MILES` BIGINT, `FARE` DECIMAL(6, 2), `DAY` DATE, `AT` TIMESTAMP, `TAGS` ARRAY<STRING>, `INFO` STRUCT<`X` INTEGER, `Y` STRING>

# Beyond ksqlDB: rows in the order of their keys, pages, and counts.
SELECT * FROM by_tail ORDER BY tail LIMIT 10;
----
BY_TAIL scan in order after () → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE
limit 10

SELECT n FROM by_tail WHERE tail >= 'a' AND 'c' > tail ORDER BY tail ASC AFTER 'ab' LIMIT 10;
----
BY_TAIL scan filtered in order after ('ab',) → (1,)
`N` BIGINT
key >= 'a' key < 'c' and nothing else
limit 10

SELECT * FROM by_tail ORDER BY n;
----
! 40001 1:23 Rows can only be ordered by their keys: ORDER BY TAIL.

SELECT * FROM by_tail ORDER BY tail DESC;
----
! 40001 1:23 Keys are read in ascending order only: leave out DESC.

SELECT * FROM by_tail ORDER BY tail AFTER ('a', 'b');
----
! 40001 1:44 AFTER takes the key of the last row: (TAIL).

SELECT * FROM by_tail ORDER BY tail AFTER 5;
----
! 40001 1:43 AFTER takes constants; this is to be a STRING.

SELECT * FROM by_tail ORDER BY tail AFTER n;
----
! 40001 1:43 AFTER takes constants; this is to be a STRING.

SELECT COUNT(*) FROM by_tail WHERE tail BETWEEN 'a' AND 'b';
----
BY_TAIL scan filtered counted → ()
`KSQL_COL_0` BIGINT
key >= 'a' key <= 'b' and nothing else

SELECT COUNT(*) AS rows FROM by_tail;
----
BY_TAIL scan counted → ()
`ROWS` BIGINT

SELECT COUNT(*) FROM by_tail LIMIT 5;
----
! 40001 1:1 COUNT(*) is one row: ORDER BY and LIMIT have no effect.

SELECT COUNT(n) FROM by_tail;
----
! 40001 1:8 Pull queries don't support GROUP BY clauses. See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.
!   COUNT is an aggregate function: aggregate in a CREATE TABLE … AS SELECT.

SELECT COUNT(*) FROM by_tail WHERE tail >= 'a' AND tail < 'b' AND n > 3;
----
BY_TAIL scan filtered counted → ()
`KSQL_COL_0` BIGINT
key >= 'a' key < 'b' and column 1 > 3 and nothing else

SELECT * FROM by_day ORDER BY carrier, windowstart AFTER ('UA', 3600000) LIMIT 2;
----
BY_DAY scan in order after ('UA', 3600000) → *
`CARRIER` STRING KEY, `WINDOWSTART` BIGINT KEY, `WINDOWEND` BIGINT KEY, `N` BIGINT
limit 2

SELECT * FROM by_day ORDER BY windowstart;
----
! 40001 1:22 Rows can only be ordered by their keys: ORDER BY CARRIER, WINDOWSTART, WINDOWEND.

SELECT * FROM by_tail WHERE tail IN ('b', 'a') ORDER BY tail;
----
BY_TAIL [('b',), ('a',)] filtered in order after () → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE

CREATE TABLE sorted AS SELECT * FROM by_tail ORDER BY tail;
----
! 40001 1:24 ORDER BY is for pull queries: a topic has no such order.

SELECT * FROM by_tail ORDER BY tail EMIT CHANGES;
----
! 40001 1:37 line 1:37: Syntax Error
!   Expecting {';', 'AFTER', 'ASC', 'DESC', 'LIMIT', <EOF>}
!   Statement: SELECT * FROM by_tail ORDER BY tail EMIT CHANGES;
!   Syntax error at or near 'EMIT' at line 1:37
!   Expecting {';', 'AFTER', 'ASC', 'DESC', 'LIMIT', <EOF>}

# A LIMIT is an INTEGER.
SELECT * FROM by_tail LIMIT 2147483647;
----
BY_TAIL scan → *
`TAIL` STRING KEY, `N` BIGINT, `WORST` DOUBLE
limit 2147483647

SELECT * FROM by_tail LIMIT 2147483648;
----
! 40001 1:29 Failed to prepare statement: Value must be integer for command: LIMIT

SELECT worst[1.5] FROM by_tail;
----
! 40001 1:8 Subscript expression (WORST[1.5]) do not apply to DOUBLE.

# An alias replaces the name of its source.
SELECT by_tail.worst FROM by_tail b WHERE b.tail = 'N1';
----
! 40001 1:8 Line: 1, Col: 8: SELECT column 'BY_TAIL.WORST' cannot be resolved.
!   Write B.WORST: an alias replaces the name.

SELECT b.worst FROM by_tail AS b WHERE by_tail.tail = 'N1';
----
! 40001 1:40 Line: 1, Col: 40: WHERE column 'BY_TAIL.TAIL' cannot be resolved.
!   Write B.TAIL: an alias replaces the name.

# Of an expression, the refusal says which type it has.
SELECT * FROM by_seats WHERE seats = CAST(12 AS BIGINT);
----
! 40001 1:38 Expected type INTEGER for field `SEATS` but got BIGINT(12) See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_seats WHERE seats IN (12, 1.5 + 1);
----
! 40001 1:44 Expected type INTEGER for field `SEATS` but got DECIMAL(2.5) See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.

SELECT * FROM by_fare WHERE fare = 1 + 5.123;
----
! 40001 1:36 Expected type DECIMAL(6, 2) for field `FARE` but got DECIMAL(6.123) See https://cnfl.io/queries for more info.
!   Add EMIT CHANGES if you intended to issue a push query.
