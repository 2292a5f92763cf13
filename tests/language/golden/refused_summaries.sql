-- title: rows of a sketch in another summary
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', sketch_rows = 5) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 90: sketch_rows is not of summary = 'filter'; accepted: summary = 'sketch'

-- title: rows of a sketch, method left open
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'auto', sketch_rows = 5) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 88: sketch_rows is not of summary = 'auto'; accepted: summary = 'sketch'

-- title: a shape of ranges without ranges
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', range_summary = 'haar') ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 8: range_summary is for ranges, and no column has RANGES; accepted: RANGES(column) in GROUP BY

-- title: a shape of ranges in a sketch
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'sketch', range_summary = 'dyadic') ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 92: range_summary is not of summary = 'sketch'; accepted: one of 'auto', 'filter', 'filter_one_sided', 'threshold', 'priority', 'filter_threshold', 'filter_priority', 'geometric'

-- title: a size of the whole noisy table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'geometric', summary_size = 8) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 94: summary_size is not of summary = 'geometric'; accepted: one of 'auto', 'filter', 'filter_one_sided', 'threshold', 'priority', 'filter_threshold', 'filter_priority', 'sketch'

-- title: a size beside the filter that decides it
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', theta = 3, summary_size = 4) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 102: summary_size has no effect beside theta of summary = 'filter'; accepted: summary_size, or theta

-- title: a size beside the threshold that decides it
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'threshold', tau = 3, summary_size = 4) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 103: summary_size has no effect beside tau of summary = 'threshold'; accepted: summary_size, or tau

-- title: a size beside both parameters that decide it
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter_threshold', theta = 3, tau = 4, summary_size = 4) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 121: summary_size has no effect beside theta and tau of summary = 'filter_threshold'; accepted: summary_size, or theta and tau

-- title: a total for a threshold that is given
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'threshold', tau = 3, total_epsilon = 0.1) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 104: tau is given, and no total is needed for it; accepted: one of the two

-- title: a total that no parameter follows from
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'priority', total_epsilon = 0.1) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 94: total_epsilon is not of summary = 'priority'; accepted: one of 'threshold', 'filter', 'filter_one_sided', 'filter_threshold', 'filter_priority'

-- title: a total while the method is left open
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'auto', total_epsilon = 0.1) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 90: total_epsilon is not of summary = 'auto'; accepted: one of 'threshold', 'filter', 'filter_one_sided', 'filter_threshold', 'filter_priority'

-- title: a total for the whole price
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'threshold', total_epsilon = 1) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 8: total_epsilon leaves nothing for the summary; accepted: less than epsilon, for example a tenth

-- title: a total for nothing
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'threshold', total_epsilon = 0) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 95: total_epsilon is out of range; accepted: total_epsilon from 1e-09 to 100

-- title: a negative total
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'threshold', total_epsilon = -0.1) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 95: total_epsilon is not a positive number; accepted: total_epsilon from 1e-09 to 100

-- title: a total without a summary
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, total_epsilon = 0.1) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 72: total_epsilon applies to summaries alone; accepted: summary = 'threshold' beside it

-- title: an unknown summary
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'bloom') ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 66: summary has no such value; accepted: 'auto', 'filter', 'filter_one_sided', 'threshold', 'priority', 'filter_threshold', 'filter_priority', 'sketch', 'geometric'

-- title: a summary that is no text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = filter) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 66: summary has no such value; accepted: 'auto', 'filter', 'filter_one_sided', 'threshold', 'priority', 'filter_threshold', 'filter_priority', 'sketch', 'geometric'

-- title: a summary of NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = NULL) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 66: summary has no such value; accepted: 'auto', 'filter', 'filter_one_sided', 'threshold', 'priority', 'filter_threshold', 'filter_priority', 'sketch', 'geometric'

-- title: an option of a summary without one
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary_size = 10) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 71: summary_size applies to summaries alone; accepted: summary = 'auto' beside it

-- title: tau without a summary
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, tau = 3) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 62: tau applies to summaries alone; accepted: summary = 'threshold' beside it

-- title: theta of zero, below what the closed form holds for
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', theta = 0) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 84: theta is out of range; accepted: theta = a whole number from 1 to 1e+12

-- title: theta between zero and one
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter_priority', theta = 0.5) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 93: theta is out of range; accepted: theta = a whole number from 1 to 1e+12

-- title: theta that is not whole
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter_threshold', theta = 2.5) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 94: theta is out of range; accepted: theta = a whole number from 1 to 1e+12

-- title: theta negative
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', theta = -3) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 84: theta is not a whole number; accepted: theta = a whole number from 1 to 1e+12

-- title: theta huge
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', theta = 1e13) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 84: theta is out of range; accepted: theta = a whole number from 1 to 1e+12

-- title: theta as text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', theta = '3') ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 84: theta is not a whole number; accepted: theta = a whole number from 1 to 1e+12

-- title: theta NaN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', theta = 'nan'::DOUBLE) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 84: theta is not a whole number; accepted: theta = a whole number from 1 to 1e+12

-- title: theta from a query
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', theta = (SELECT max(age) FROM visits)) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 84: theta is not a whole number; accepted: theta = a whole number from 1 to 1e+12

-- title: theta of a summary without a filter
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'priority', theta = 3) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 86: theta is not of summary = 'priority'; accepted: one of 'filter', 'filter_one_sided', 'filter_threshold', 'filter_priority'

-- title: tau of zero
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'threshold', tau = 0) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 85: tau is out of range; accepted: tau from 0.001 to 1e+12

-- title: tau negative
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'threshold', tau = -1) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 85: tau is not a positive number; accepted: tau from 0.001 to 1e+12

-- title: tau infinite
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter_threshold', tau = 1e999) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 92: tau is out of range; accepted: tau from 0.001 to 1e+12

-- title: tau of a summary that chooses its own
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter_priority', tau = 3) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 91: tau is not of summary = 'filter_priority'; accepted: one of 'threshold', 'filter_threshold'

-- title: tau of a plain filter
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', tau = 3) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 82: tau is not of summary = 'filter'; accepted: one of 'threshold', 'filter_threshold'

-- title: a summary of no rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'priority', summary_size = 0) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 93: summary_size is out of range; accepted: summary_size = a whole number from 1 to 2e+07

-- title: a summary of negative size
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'priority', summary_size = -5) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 93: summary_size is not a whole number; accepted: summary_size = a whole number from 1 to 2e+07

-- title: a summary of half a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'priority', summary_size = 1.5) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 93: summary_size is out of range; accepted: summary_size = a whole number from 1 to 2e+07

-- title: a summary of too many rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'priority', summary_size = 20000001) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 93: summary_size is out of range; accepted: summary_size = a whole number from 1 to 2e+07

-- title: a summary larger than the domain
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'priority', summary_size = 9) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 8: summary_size = 9 is more than the domain's cells; accepted: at most 8

-- title: a sketch without rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'sketch', sketch_rows = 0) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 90: sketch_rows is out of range; accepted: sketch_rows = a whole number from 1 to 99

-- title: a sketch of too many rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'sketch', sketch_rows = 100) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 90: sketch_rows is out of range; accepted: sketch_rows = a whole number from 1 to 99

-- title: a domain larger than the limit
-- before: sql CREATE TABLE trips AS SELECT 1 AS a, 2 AS b, 3 AS c, 4 AS d, 5 AS e, 6 AS f, 7 AS g, 'canary' AS name FROM range(9)
-- before: CREATE PRIVACY POLICY ON trips (PRIVACY UNIT ROW, BUDGET (epsilon = 9), DOMAIN a RANGE 0 TO 40000 STEP 1, DOMAIN b RANGE 0 TO 40000 STEP 1, DOMAIN c RANGE 0 TO 40000 STEP 1, DOMAIN d RANGE 0 TO 40000 STEP 1, DOMAIN e RANGE 0 TO 40000 STEP 1, DOMAIN f RANGE 0 TO 40000 STEP 1, DOMAIN g RANGE 0 TO 40000 STEP 1)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter_priority') a, b, c, d, e, f, g, count(*) FROM trips GROUP BY a, b, c, d, e, f, g
-- refused: line 1, column 8: the domain has 1.64e+32 cells; accepted: at most 1e+30 in a summary: fewer columns, larger steps

-- title: a domain of ranges larger than the limit
-- before: sql CREATE TABLE trips AS SELECT 1 AS a, 2 AS b, 3 AS c, 4 AS d, 5 AS e, 6 AS f, 7 AS g, 'canary' AS name FROM range(9)
-- before: CREATE PRIVACY POLICY ON trips (PRIVACY UNIT ROW, BUDGET (epsilon = 9), DOMAIN a RANGE 0 TO 40000 STEP 1, DOMAIN b RANGE 0 TO 40000 STEP 1, DOMAIN c RANGE 0 TO 40000 STEP 1, DOMAIN d RANGE 0 TO 40000 STEP 1, DOMAIN e RANGE 0 TO 40000 STEP 1, DOMAIN f RANGE 0 TO 40000 STEP 1, DOMAIN g RANGE 0 TO 40000 STEP 1)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', range_summary = 'dyadic') a, b, c, d, e, f, g, count(*) FROM trips GROUP BY RANGES(a), RANGES(b), RANGES(c), RANGES(d), RANGES(e), RANGES(f), RANGES(g)
-- refused: line 1, column 8: the domain has 2.1e+34 cells; accepted: at most 1e+30 in a summary: fewer columns, larger steps

-- title: the geometric mechanism over a large domain
-- before: sql CREATE TABLE trips AS SELECT 1 AS a, 2 AS b, 3 AS c, 4 AS d, 5 AS e, 6 AS f, 7 AS g, 'canary' AS name FROM range(9)
-- before: CREATE PRIVACY POLICY ON trips (PRIVACY UNIT ROW, BUDGET (epsilon = 9), DOMAIN a RANGE 0 TO 40000 STEP 1, DOMAIN b RANGE 0 TO 40000 STEP 1, DOMAIN c RANGE 0 TO 40000 STEP 1, DOMAIN d RANGE 0 TO 40000 STEP 1, DOMAIN e RANGE 0 TO 40000 STEP 1, DOMAIN f RANGE 0 TO 40000 STEP 1, DOMAIN g RANGE 0 TO 40000 STEP 1)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'geometric') a, b, count(*) FROM trips GROUP BY a, b
-- refused: line 1, column 8: the noisy table would have 1600000000 cells; accepted: at most 20000000, or a summary

-- title: a sketch of a sum
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'sketch') ward, sum(least(greatest(age, 0), 100)) FROM visits GROUP BY ward
-- refused: line 1, column 8: a sketch counts rows; accepted: count(*), or another summary

-- title: a summary of an average
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter') ward, avg(least(greatest(age, 0), 100)) FROM visits GROUP BY ward
-- refused: line 1, column 8: a summary does not answer avg(least(greatest("age", 0), 100)); accepted: count(*), count(*) FILTER (WHERE ..), sum(column) of a column with a CLAMP

-- title: a summary of distinct values
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter') ward, count(DISTINCT sex) FROM visits GROUP BY ward
-- refused: line 1, column 8: a summary does not answer count(DISTINCT "sex"); accepted: count(*), count(*) FILTER (WHERE ..), sum(column) of a column with a CLAMP

-- title: a summary of two counts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter') ward, count(*), count(*) FILTER (WHERE urgent) FROM visits GROUP BY ward
-- refused: line 1, column 8: 2 aggregates in a summary; accepted: one count or sum in each statement

-- title: a summary of everybody
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter') count(*) FROM visits 
-- refused: line 1, column 8: a summary has one list of columns; accepted: GROUP BY a, b, ..

-- title: a summary of a cube
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter') ward, sex, count(*) FROM visits GROUP BY CUBE (ward, sex)
-- refused: line 1, column 8: a summary has one list of columns; accepted: GROUP BY a, b, ..

-- title: a summary of prefixes
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter') age, count(*) FROM visits GROUP BY PREFIXES(age)
-- refused: line 1, column 8: a summary has no PREFIXES; accepted: RANGES(age)

-- title: a summary of ranges of an unknown shape
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', range_summary = 'daubechies') age, count(*) FROM visits GROUP BY RANGES(age)
-- refused: line 1, column 92: range_summary has no such value; accepted: 'dyadic', 'haar'

-- title: a one-sided filter of Haar coefficients, which have either sign
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter_one_sided', range_summary = 'haar') age, count(*) FROM visits GROUP BY RANGES(age)
-- refused: line 1, column 102: filter_one_sided is not of Haar coefficients, which have either sign; accepted: summary = 'filter', or range_summary = 'dyadic'

-- title: a summary at a delta
-- before: sql CREATE TABLE stays AS SELECT 'FM'[i % 2 + 1] AS sex, 'canary' AS name FROM range(9) AS r(i)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT ROW, BUDGET (epsilon = 2, delta = 1e-6), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-7, summary = 'filter') sex, count(*) FROM stays GROUP BY sex
-- refused: line 1, column 8: a summary has geometric noise; accepted: epsilon = .. without delta and rho

-- title: a summary at a rho
-- before: sql CREATE TABLE stays AS SELECT 'FM'[i % 2 + 1] AS sex, 'canary' AS name FROM range(9) AS r(i)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT ROW, BUDGET (epsilon = 2, delta = 1e-6), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.01, summary = 'filter') sex, count(*) FROM stays GROUP BY sex
-- refused: line 1, column 8: a summary has geometric noise; accepted: epsilon = .. without delta and rho

-- title: a summary of selected keys
-- before: sql CREATE TABLE calls AS SELECT i AS caller, 'canary' AS reason FROM range(9) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-7, group_selection_strategy = LAPLACE_THRESHOLD, summary = 'filter') reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 8: a summary is over public domains; accepted: group_selection_strategy = PUBLIC_GROUPS

-- title: a summary with a strategy of matrices
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', strategy = 'Q') ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 87: strategy does not apply to a summary; accepted: summary, summary_size, theta, tau, total_epsilon, range_summary, sketch_rows, consistency = 'none'

-- title: a summary made whole numbers
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', integer = TRUE) ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 86: integer does not apply to a summary; accepted: summary, summary_size, theta, tau, total_epsilon, range_summary, sketch_rows, consistency = 'none'

-- title: a summary of another consistency
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter', consistency = 'l1') ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 90: consistency of a summary has no such value; accepted: 'none', or without it

-- title: a summary at a target error
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 3, summary = 'filter') ward, count(*) FROM visits GROUP BY ward
-- refused: line 1, column 59: target_stderr does not apply to a summary; accepted: summary, summary_size, theta, tau, total_epsilon, range_summary, sketch_rows, consistency = 'none'

-- title: some rows of a sketch
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'sketch') ward, count(*) FROM visits GROUP BY ward LIMIT 5
-- refused: line 1, column 117: a sketch is released whole; accepted: without HAVING, QUALIFY, ORDER BY and LIMIT
