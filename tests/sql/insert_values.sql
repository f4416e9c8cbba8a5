INSERT INTO flights (tail, seats, delay) VALUES ('N1', -5, 3);
----
insert into flights ('N1', None, 3.0, -5, None, None, None, None, None, None) at None

INSERT INTO flights (rowtime, tail) VALUES (1000, 'N1');
----
insert into flights ('N1', None, None, None, None, None, None, None, None, None) at 1000

INSERT INTO planes VALUES ('N1', 'BOEING');
----
insert into planes ('N1', 'BOEING') at None

INSERT INTO flights (tail, fare, day, at) VALUES ('N1', 1.5, '2013-01-01', '2013-01-01T00:00:01');
----
insert into flights ('N1', None, None, None, None, Decimal('1.50'), 15706, 1356998401000, None, None) at None

INSERT INTO flights (tags, info) VALUES (ARRAY['a', NULL, CAST(NULL AS STRING)], STRUCT(Y := 'y'));
----
insert into flights (None, None, None, None, None, None, None, None, ['a', None, None], {'X': None, 'Y': 'y'}) at None

INSERT INTO flights (seats) VALUES (CAST('7' AS INT));
----
insert into flights (None, None, None, 7, None, None, None, None, None, None) at None

INSERT INTO flights (tail, seats) VALUES ('N1');
----
! 40001 1:1 Failed to prepare statement: Expected number columns and values to match: 2, 1

INSERT INTO flights (tail, seat) VALUES ('N1', 1);
----
! 40001 1:1 Failed to insert values into 'FLIGHTS'. Column name `SEAT` does not exist.
!   Did you mean SEATS?

INSERT INTO flights (tail, tail) VALUES ('N1', 'N1');
----
! 40001 1:48 Column TAIL is named twice.

INSERT INTO flights (seats) VALUES ('1');
----
! 40001 1:37 Failed to insert values into 'FLIGHTS'. Expected type INTEGER for field `SEATS` but got STRING(1)

INSERT INTO flights (seats) VALUES (3000000000);
----
! 40001 1:37 Failed to insert values into 'FLIGHTS'. Expected type INTEGER for field `SEATS` but got BIGINT(3000000000)

INSERT INTO flights (fare) VALUES (12345.67);
----
! 40001 1:36 Failed to insert values into 'FLIGHTS'. Expected type DECIMAL(6, 2) for field `FARE` but got DECIMAL(12345.67)

INSERT INTO flights (tail) VALUES (carrier);
----
! 40001 1:36 Failed to insert values into 'FLIGHTS'. Unsupported column reference in insert value: CARRIER

INSERT INTO flights (tail) VALUES (foo.bar);
----
! 40001 1:36 Failed to prepare statement: 'FOO' is not a valid stream/table name or alias.

INSERT INTO flights (tags) VALUES (ARRAY['a', UCASE('b') + 'c', CASE WHEN 1 > 2 THEN 'd' END]);
----
insert into flights (None, None, None, None, None, None, None, None, ['a', 'Bc', None], None) at None

INSERT INTO flights (seats) VALUES (UUID());
----
! 40001 1:37 Failed to insert values into 'FLIGHTS'. The function UUID() in a pull query is not supported yet.

INSERT INTO flights (seats) VALUES (1 + seats);
----
! 40001 1:41 Failed to insert values into 'FLIGHTS'. Unsupported column reference in insert value: (1 + SEATS)

INSERT INTO flights (seats) VALUES (1 + 1);
----
insert into flights (None, None, None, 2, None, None, None, None, None, None) at None

INSERT INTO flights (tail, rowoffset) VALUES ('N1', 5);
----
! 40001 1:1 Failed to insert values into 'FLIGHTS'. Inserting into column `ROWOFFSET` is not allowed.

INSERT INTO planes (maker) VALUES ('BOEING');
----
! 40001 1:1 Failed to insert values into 'PLANES'. Value for primary key column(s) TAIL is required for tables

INSERT INTO nowhere VALUES (1);
----
! 40001 1:1 Cannot insert values into an unknown stream/table: `NOWHERE`

INSERT INTO "flights" (tail) VALUES ('N1');
----
! 40001 1:1 Cannot insert values into an unknown stream/table: `flights`
!   Did you mean FLIGHTS? Hint: try removing double quotes from the source name.

# A table of ours has one writer.
INSERT INTO by_tail (tail, n) VALUES ('N1', 1);
----
! 40001 1:1 Cannot insert values into table `BY_TAIL`: it is written by query CTAS_BY_TAIL_1.

INSERT INTO flights (delay) VALUES (1e308 * 10);
----
! 40001 1:37 Failed to insert values into 'FLIGHTS'. Number overflows DOUBLE in field `DELAY`: (1e308 * 10)

INSERT INTO flights (delay) VALUES (SQRT(-1));
----
! 40001 1:37 Failed to insert values into 'FLIGHTS'. Number overflows DOUBLE in field `DELAY`: SQRT(-1)
