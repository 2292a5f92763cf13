-- title: a sum of doubles for each unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, sum(CAST(age AS DOUBLE)) AS n FROM patients GROUP BY id) WHERE n > 3
-- refused: line 1, column 82: a sum of DOUBLE may overflow, or depend on the order of rows; accepted: sum(CAST(x AS DECIMAL(18, 4))), or of whole numbers of at most 64 bits

-- title: first without an order
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, first(ward) AS n FROM patients GROUP BY id) WHERE n = 'w0'
-- refused: line 1, column 82: first without ORDER BY is refused; accepted: first(x ORDER BY admitted), any_value(x)

-- title: a median for each unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, median(age) AS n FROM patients GROUP BY id) WHERE n > 3
-- refused: line 1, column 82: this is refused in a subquery with a row for each privacy unit; accepted: count, min, max, sum, first(x ORDER BY y), last(x ORDER BY y), arg_min, arg_max, any_value, bool_or, bool_and

-- title: the largest of an interval
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, max(to_days(age)) AS n FROM patients GROUP BY id) WHERE n IS NULL
-- refused: line 1, column 86: to_days is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: the two largest
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, max(age, 2) AS n FROM patients GROUP BY id) WHERE n IS NULL
-- refused: line 1, column 82: this is refused in a subquery with a row for each privacy unit; accepted: count, min, max, sum, first(x ORDER BY y), last(x ORDER BY y), arg_min, arg_max, any_value, bool_or, bool_and

-- title: whether a number is true
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, bool_or(age) AS n FROM patients GROUP BY id) WHERE n
-- refused: line 1, column 82: a condition is INTEGER; accepted: a condition such as sex = 'F', which is true or false

-- title: a filter that is no condition
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, count(*) FILTER (WHERE age) AS n FROM patients GROUP BY id) WHERE n > 1
-- refused: line 1, column 105: a condition is INTEGER; accepted: a condition such as sex = 'F', which is true or false

-- title: a sum of a constant
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, sum(1) AS n FROM patients GROUP BY id) WHERE n > 1
-- refused: line 1, column 86: a constant is refused here; accepted: a column, or an expression over columns

-- title: an aggregate of an aggregate
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, max(min(age)) AS n FROM patients GROUP BY id) WHERE n > 1
-- refused: line 1, column 86: an aggregate inside a row expression is refused; accepted: aggregates in the select list or HAVING

-- title: an expression beside the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, max(age) - age AS n FROM patients GROUP BY id) WHERE n > 1
-- refused: line 1, column 93: a column that is not the privacy unit's; accepted: GROUP BY the privacy unit's column alone, with it and count, min, max, sum, first, bool_or selected

-- title: a window over all rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT ward, row_number() OVER (ORDER BY age) AS n FROM patients) WHERE n = 1
-- refused: line 1, column 84: a window over rows of several privacy units is refused; accepted: OVER (PARTITION BY the privacy unit's column alone ORDER BY ..)

-- title: a window by another column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT ward, row_number() OVER (PARTITION BY ward ORDER BY age) AS n FROM patients) WHERE n = 1
-- refused: line 1, column 116: a window over rows of several privacy units is refused; accepted: OVER (PARTITION BY the privacy unit's column alone ORDER BY ..)

-- title: a window by the unit and another column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT ward, row_number() OVER (PARTITION BY id, ward ORDER BY age) AS n FROM patients) WHERE n = 1
-- refused: line 1, column 84: a window over rows of several privacy units is refused; accepted: OVER (PARTITION BY the privacy unit's column alone ORDER BY ..)

-- title: a window with a frame
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT sum(age) OVER (PARTITION BY id ORDER BY age ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n FROM patients) WHERE n > 1
-- refused: line 1, column 78: this form of a window is refused over private rows; accepted: row_number, rank, dense_rank, lag, lead, first_value, count, sum, min, max, bool_or, bool_and OVER (PARTITION BY the privacy unit's column ORDER BY ..)

-- title: the last value of a frame
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT last_value(age) OVER (PARTITION BY id ORDER BY age) AS n FROM patients) WHERE n > 1
-- refused: line 1, column 78: this window is refused over private rows; accepted: row_number, rank, dense_rank, lag, lead, first_value, count, sum, min, max, bool_or, bool_and OVER (PARTITION BY the privacy unit's column ORDER BY ..)

-- title: lag without an order
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT lag(age) OVER (PARTITION BY id) AS n FROM patients) WHERE n > 1
-- refused: line 1, column 78: this window is refused over private rows; accepted: row_number, rank, dense_rank, lag, lead, first_value, count, sum, min, max, bool_or, bool_and OVER (PARTITION BY the privacy unit's column ORDER BY ..)

-- title: lag with a default
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT lag(age, 1, 0) OVER (PARTITION BY id ORDER BY age) AS n FROM patients) WHERE n > 1
-- refused: line 1, column 78: this form of lag or lead is refused; accepted: lag(x), lag(x, 2), up to 10000

-- title: lag by a column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT lag(age, age) OVER (PARTITION BY id ORDER BY age) AS n FROM patients) WHERE n > 1
-- refused: line 1, column 78: this form of lag or lead is refused; accepted: lag(x), lag(x, 2), up to 10000

-- title: a window that ignores NULLs
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT lag(age IGNORE NULLS) OVER (PARTITION BY id ORDER BY age) AS n FROM patients) WHERE n > 1
-- refused: line 1, column 78: this form of a window is refused over private rows; accepted: row_number, rank, dense_rank, lag, lead, first_value, count, sum, min, max, bool_or, bool_and OVER (PARTITION BY the privacy unit's column ORDER BY ..)

-- title: a named window
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT row_number() OVER w AS n FROM patients WINDOW w AS (PARTITION BY id ORDER BY age)) WHERE n = 1
-- refused: line 1, column 117: WINDOW over private rows is refused; accepted: windows over the noisy answers

-- title: a window in WHERE of the annotated SELECT
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients WHERE row_number() OVER (PARTITION BY id ORDER BY age) = 1
-- refused: line 1, column 85: a window over private rows is refused; accepted: a window over the answers: rank() OVER (ORDER BY count(*))

-- title: a window in an aggregate
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, max(lag(age) OVER (PARTITION BY id ORDER BY age)) AS n FROM patients GROUP BY id) WHERE n > 1
-- refused: line 1, column 86: a window over private rows is refused; accepted: a window over the answers: rank() OVER (ORDER BY count(*))

-- title: a quarter of the rows by a window
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT ntile(4) OVER (PARTITION BY id ORDER BY age) AS n FROM patients) WHERE n = 1
-- refused: line 1, column 78: this window is refused over private rows; accepted: row_number, rank, dense_rank, lag, lead, first_value, count, sum, min, max, bool_or, bool_and OVER (PARTITION BY the privacy unit's column ORDER BY ..)

-- title: an order inside of rank
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT rank(ORDER BY age) OVER (PARTITION BY id ORDER BY ward) AS n FROM patients) WHERE n = 1
-- refused: line 1, column 78: this window is refused over private rows; accepted: row_number, rank, dense_rank, lag, lead, first_value, count, sum, min, max, bool_or, bool_and OVER (PARTITION BY the privacy unit's column ORDER BY ..)
