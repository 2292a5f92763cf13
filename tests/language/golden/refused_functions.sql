-- title: random
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE random() < 0.5 GROUP BY sex
-- refused: line 1, column 88: random() is not deterministic; accepted: a deterministic expression

-- title: setseed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE setseed(0.5) IS NULL GROUP BY sex
-- refused: line 1, column 88: setseed is volatile or has side effects; accepted: deterministic functions of the row alone

-- title: uuid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE uuid() IS NULL GROUP BY sex
-- refused: line 1, column 88: uuid is volatile or has side effects; accepted: deterministic functions of the row alone

-- title: now
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE now() > at GROUP BY sex
-- refused: line 1, column 88: now is volatile or has side effects; accepted: deterministic functions of the row alone

-- title: current_date
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE day < current_date GROUP BY sex
-- refused: line 1, column 94: current_date changes by itself; accepted: a date literal

-- title: current_timestamp
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE at < current_timestamp GROUP BY sex
-- refused: line 1, column 93: the current time changes by itself; accepted: a timestamp literal

-- title: today
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE day < today() GROUP BY sex
-- refused: line 1, column 94: current_date changes by itself; accepted: a date literal

-- title: nextval
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE nextval('steps') > 0 GROUP BY sex
-- refused: line 1, column 88: nextval is volatile or has side effects; accepted: deterministic functions of the row alone

-- title: currval
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE currval('steps') > 0 GROUP BY sex
-- refused: line 1, column 88: currval is volatile or has side effects; accepted: deterministic functions of the row alone

-- title: write_log
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE write_log(note) IS NULL GROUP BY sex
-- refused: line 1, column 88: write_log is volatile or has side effects; accepted: deterministic functions of the row alone

-- title: sleep_ms
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE sleep_ms(1000) IS NULL GROUP BY sex
-- refused: line 1, column 88: sleep_ms is volatile or has side effects; accepted: deterministic functions of the row alone

-- title: getvariable
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE getvariable('x') = sex GROUP BY sex
-- refused: line 1, column 88: getvariable is volatile or has side effects; accepted: deterministic functions of the row alone

-- title: current_setting
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE current_setting('threads') = sex GROUP BY sex
-- refused: line 1, column 88: current_setting is volatile or has side effects; accepted: deterministic functions of the row alone

-- title: getenv
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE getenv('HOME') = sex GROUP BY sex
-- refused: line 1, column 88: getenv is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: error
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE CASE WHEN sex = 'F' THEN error('found') END GROUP BY sex
-- refused: line 1, column 113: error is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: current_user
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE current_user = sex GROUP BY sex
-- refused: line 1, column 88: current_user is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: pg_typeof
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE pg_typeof(sex) = 'x' GROUP BY sex
-- refused: line 1, column 88: pg_typeof is volatile or has side effects; accepted: deterministic functions of the row alone

-- title: stats, which tells DuckDB's statistics
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE stats(age) = 'x' GROUP BY sex
-- refused: line 1, column 88: stats is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: hash
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE hash(note) % 2 = 0 GROUP BY sex
-- refused: line 1, column 88: hash is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: a user's macro
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE peek(age) > 3 GROUP BY sex
-- refused: line 1, column 88: there is no function 'peek'; accepted: week (did you mean that?)

-- title: a function of a schema
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE main.peek(age) > 3 GROUP BY sex
-- refused: line 1, column 88: a method call or a function of a schema is refused; accepted: plain calls such as upper(ward)

-- title: a method call
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE note.upper() = 'X' GROUP BY sex
-- refused: line 1, column 88: a method call or a function of a schema is refused; accepted: plain calls such as upper(ward)

-- title: repeat, which makes long texts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE length(repeat(note, 1000000000)) > 0 GROUP BY sex
-- refused: line 1, column 95: repeat is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: lpad, which makes long texts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE length(lpad(note, 1000000000, 'x')) > 0 GROUP BY sex
-- refused: line 1, column 95: lpad is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: generate_series
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE len(generate_series(1, 1000000000)) > age GROUP BY sex
-- refused: line 1, column 92: generate_series is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: a text that grows by replacing
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE length(replace(replace(note, 'n', '<<x * 100>>'), 'x', '<<x * 100>>')) > 0 GROUP BY sex
-- refused: line 1, column 88: this makes texts more than 64 times as long; accepted: fewer concatenations, shorter replacements

-- title: a text that grows by regexp_replace
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE length(regexp_replace(note, '.', '<<x * 100>>', 'g')) > 0 GROUP BY sex
-- refused: line 1, column 88: this makes texts more than 64 times as long; accepted: fewer concatenations, shorter replacements

-- title: a text that doubles level by level
WITH a AS (SELECT sex, note || note AS x FROM visits), b AS (SELECT sex, x || x AS x FROM a), c AS (SELECT sex, x || x AS x FROM b),
d AS (SELECT sex, x || x AS x FROM c), e AS (SELECT sex, x || x AS x FROM d), f AS (SELECT sex, x || x AS x FROM e), g AS (SELECT sex, x || x AS x FROM f)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM g WHERE x <> '' GROUP BY sex
-- refused: line 1, column 24: this makes texts more than 64 times as long; accepted: fewer concatenations, shorter replacements

-- title: a pattern that takes exponential time
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE note LIKE '%a_%a%a%a%b' GROUP BY sex
-- refused: line 1, column 88: a pattern with more than one wildcard before its end, whose time would depend on private rows; accepted: LIKE with % alone, of lower(column) in place of ILIKE; or one wildcard, and one at the end

-- title: a pattern of ILIKE that takes exponential time
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE note ILIKE '%a%a%a%a%a%b' GROUP BY sex
-- refused: line 1, column 88: a pattern with more than one wildcard before its end, whose time would depend on private rows; accepted: LIKE with % alone, of lower(column) in place of ILIKE; or one wildcard, and one at the end

-- title: a pattern of GLOB that takes exponential time
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE note GLOB '*a*a*a*a*b' GROUP BY sex
-- refused: line 1, column 88: a pattern with more than one wildcard before its end, whose time would depend on private rows; accepted: LIKE with % alone, of lower(column) in place of ILIKE; or one wildcard, and one at the end

-- title: a pattern that is read from a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE note LIKE ward GROUP BY sex
-- refused: line 1, column 88: the pattern is not a literal: it would be read from private rows; accepted: a quoted text

-- title: a regular expression that is read from a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE regexp_matches(note, ward) GROUP BY sex
-- refused: line 1, column 88: the pattern is not a literal: it would be read from private rows; accepted: a quoted text

-- title: a regular expression that does not compile
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE regexp_matches(note, 'a[b') GROUP BY sex
-- refused: line 1, column 88: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: ESCAPE with more than one character
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE note LIKE 'x' ESCAPE 'ab' GROUP BY sex
-- refused: line 1, column 88: ESCAPE takes one character; accepted: LIKE 'pattern' ESCAPE '\'

-- title: part of a date that is read from a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE date_part(note, day) = 1 GROUP BY sex
-- refused: line 1, column 88: the part of a date is not a literal: it would be read from private rows; accepted: a quoted text

-- title: part of a date that does not exist
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE date_trunc('fortnight', day) = day GROUP BY sex
-- refused: line 1, column 88: this part of a date is not on the list; accepted: century, day, dayofmonth, dayofweek, dayofyear, decade, dow, doy, epoch, hour, isodow, isoyear, microsecond, millennium, millisecond, minute, month, quarter, second, week, weekday, weekofyear, year, yearweek

-- title: a constant that does not convert
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE day = 'yesterday' GROUP BY sex
-- refused: line 1, column 88: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: a date that does not exist
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE sex = 'F' AND day = DATE '2024-02-31' GROUP BY sex
-- refused: line 1, column 102: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: a list with a value of another type
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE age IN (1, 2, 'three') GROUP BY sex
-- refused: line 1, column 88: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: an addition of constants that overflows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE age < 9223372036854775807 + 1 GROUP BY sex
-- refused: line 1, column 88: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: types that do not compare
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE urgent > day GROUP BY sex
-- refused: line 1, column 88: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: a function that takes other types
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE sqrt(note) > 1 GROUP BY sex
-- refused: line 1, column 88: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: a cast to a type of the user
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE CAST(note AS grade) = 'low' GROUP BY sex
-- refused: line 1, column 88: a cast to grade is refused; accepted: numbers, BOOLEAN, VARCHAR, DATE, TIMESTAMP, INTERVAL

-- title: a cast to JSON
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE CAST(note AS JSON) IS NOT NULL GROUP BY sex
-- refused: line 1, column 88: a cast to JSON is refused; accepted: numbers, BOOLEAN, VARCHAR, DATE, TIMESTAMP, INTERVAL

-- title: a cast to a list
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE CAST(note AS INTEGER[]) IS NOT NULL GROUP BY sex
-- refused: line 1, column 88: a cast to INT[] is refused; accepted: numbers, BOOLEAN, VARCHAR, DATE, TIMESTAMP, INTERVAL

-- title: a list
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE len([age, 1]) > 1 GROUP BY sex
-- refused: line 1, column 92: a list is refused; accepted: numbers, texts, BOOLEAN, dates and times

-- title: a struct
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE {'a': age} IS NOT NULL GROUP BY sex
-- refused: line 1, column 88: a struct is refused; accepted: numbers, texts, BOOLEAN, dates and times

-- title: a lambda
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE list_transform([age], x -> x + 1) IS NOT NULL GROUP BY sex
-- refused: line 1, column 88: list_transform is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: a lambda of the new form
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE list_transform([age], lambda x: x + 1) IS NOT NULL GROUP BY sex
-- refused: line 1, column 88: list_transform is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: a path into JSON
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE note ->> '$.a' = 'x' GROUP BY sex
-- refused: line 1, column 88: json_extract_scalar is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: a collation of its own
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE note COLLATE NOCASE = 'NOTE 1' GROUP BY sex
-- refused: line 1, column 88: COLLATE is refused; accepted: upper or lower of both sides

-- title: COLUMNS
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE COLUMNS('.*') IS NOT NULL GROUP BY sex
-- refused: line 1, column 88: COLUMNS is refused; accepted: a list of columns

-- title: * inside an expression
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE greatest(*) > 1 GROUP BY sex
-- refused: line 1, column 97: * inside an expression is refused; accepted: count(*) or a column

-- title: a placeholder
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE age > ? GROUP BY sex
-- refused: line 1, column 94: a placeholder is refused; accepted: a literal: the statement itself may be a bound parameter of dp(?)

-- title: a parameter
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE age > $1 GROUP BY sex
-- refused: line 1, column 94: a placeholder is refused; accepted: a literal: the statement itself may be a bound parameter of dp(?)

-- title: an aggregate in WHERE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE count(*) > 1 GROUP BY sex
-- refused: line 1, column 88: an aggregate inside a row expression is refused; accepted: aggregates in the select list or HAVING

-- title: a window over raw rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE row_number() OVER (ORDER BY age) < 10 GROUP BY sex
-- refused: line 1, column 88: a window over private rows is refused; accepted: a window over the answers: rank() OVER (ORDER BY count(*))

-- title: a window over raw rows in the select list
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*), lag(note) OVER () FROM visits GROUP BY sex
-- refused: line 1, column 75: the column 'note' is neither grouped nor counted; accepted: a column of GROUP BY, or count(column)

-- title: a window over raw rows without groups
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) avg(age) OVER () FROM visits
-- refused: line 1, column 60: a window over private rows is refused; accepted: a window over the answers: rank() OVER (ORDER BY count(*))

-- title: a window over an ungrouped column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*), rank() OVER (PARTITION BY ward) FROM visits GROUP BY sex
-- refused: line 1, column 97: the column 'ward' is neither grouped nor counted; accepted: a column of GROUP BY, or count(column)

-- title: a window function that is not on the list
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*), mode(count(*)) OVER () FROM visits GROUP BY sex
-- refused: line 1, column 71: this window function is refused; accepted: rank, row_number, sum, avg, min, max, lag, lead, ntile ..

-- title: a part of a date that DuckDB refuses for some types only when it meets a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE sex = 'F' AND extract(timezone FROM day) = 0 GROUP BY sex
-- refused: line 1, column 102: this part of a date is not on the list; accepted: century, day, dayofmonth, dayofweek, dayofyear, decade, dow, doy, epoch, hour, isodow, isoyear, microsecond, millennium, millisecond, minute, month, quarter, second, week, weekday, weekofyear, year, yearweek

-- title: part of an interval, which DuckDB refuses only when it meets a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE date_part('week', at - at) = 1 GROUP BY sex
-- refused: line 1, column 106: a function of dates over INTERVAL is refused; accepted: a DATE or a TIMESTAMP

-- title: the day of an interval
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE dayofweek(at - at) = 1 GROUP BY sex
-- refused: line 1, column 98: a function of dates over INTERVAL is refused; accepted: a DATE or a TIMESTAMP

-- title: a difference of times
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE date_diff('year', CAST(at AS TIME), CAST(at AS TIME)) = 1 GROUP BY sex
-- refused: line 1, column 124: a function of dates over TIME is refused; accepted: a DATE or a TIMESTAMP

-- title: a text with a part of SQL where a word stands
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE at > TIMESTAMP '2024-01-01' + INTERVAL '1' "day) OR (1 = 1" GROUP BY sex
-- refused: line 1, column 131: the SELECT does not parse near '"day) OR (1 = 1"'; accepted: DuckDB's SQL

-- title: a function with an argument that DuckDB does not have
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE instr(note, 'a', 1, 2) > 0 GROUP BY sex
-- refused: line 1, column 88: DuckDB has no function of this form; accepted: the arguments that DuckDB documents

-- title: a constant of an aggregate that does not convert
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FILTER (WHERE day > '2024-13-01') FROM visits
-- refused: line 1, column 79: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: a slip in the name of an aggregate
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) coutn(*) FROM visits
-- refused: line 1, column 56: there is no function 'coutn'; accepted: count (did you mean that?)

-- title: a function with too many arguments
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) upper(sex, 1) AS u, count(*) FROM visits GROUP BY 1
-- refused: line 1, column 68: upper(..) has 2 arguments; accepted: at most 1, as DuckDB documents

-- title: a standard error without its prefix
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n, stderr(n) FROM visits GROUP BY sex
-- refused: line 1, column 83: there is no function 'stderr'; accepted: dp_stderr(n)

-- title: a text of a tuple
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE CAST((note, 1) AS VARCHAR) > 'a' GROUP BY sex
-- refused: line 1, column 93: a tuple is refused where it is not compared with tuples; accepted: (ward, sex) IN ((1, 'F'))

-- title: a tuple of a text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits WHERE (note, 'a') IN (note) GROUP BY sex
-- refused: line 1, column 88: a tuple is refused where it is not compared with tuples; accepted: (ward, sex) IN ((1, 'F'))
