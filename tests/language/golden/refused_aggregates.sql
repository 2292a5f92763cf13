-- title: a sum whose bounds are in the wrong order
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, sum(age, contribution_bounds_per_row => (10, 0)) FROM visits GROUP BY sex
-- refused: line 1, column 61: contribution_bounds_per_row takes two numbers, the lower one first; accepted: contribution_bounds_per_row => (low, high)

-- title: bounds that are no pair of numbers
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, sum(age, contribution_bounds_per_row => 10) FROM visits GROUP BY sex
-- refused: line 1, column 61: contribution_bounds_per_row takes two numbers, the lower one first; accepted: contribution_bounds_per_row => (low, high)

-- title: an unknown argument of an aggregate
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, sum(age, bounds => (0, 10)) FROM visits GROUP BY sex
-- refused: line 1, column 61: the argument 'bounds' is unknown; accepted: contribution_bounds_per_row => (low, high), contribution_bounds_per_group => (low, high)

-- title: bounds given twice
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, sum(age, contribution_bounds_per_row => (0, 10), contribution_bounds_per_row => (0, 10)) FROM visits GROUP BY sex
-- refused: line 1, column 61: bounds are given twice; accepted: contribution_bounds_per_row or contribution_bounds_per_group, once

-- title: bounds by group where every row is a unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*, contribution_bounds_per_group => (0, 5)) FROM visits GROUP BY sex
-- refused: line 1, column 61: with PRIVACY UNIT ROW every row is a unit: contribution_bounds_per_group is refused; accepted: contribution_bounds_per_row

-- title: bounds by row of a count
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*, contribution_bounds_per_row => (0, 5)) FROM visits GROUP BY sex
-- refused: line 1, column 61: contribution_bounds_per_row does not apply to count; accepted: count(*, contribution_bounds_per_group => (0, high))

-- title: bounds by group of a variance
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, var_pop(age, contribution_bounds_per_group => (0, 5)) FROM visits GROUP BY sex
-- refused: line 1, column 61: with PRIVACY UNIT ROW every row is a unit: contribution_bounds_per_group is refused; accepted: contribution_bounds_per_row

-- title: bounds too far from zero
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, sum(age, contribution_bounds_per_row => (0, 1e20)) FROM visits GROUP BY sex
-- refused: line 1, column 65: these bounds are too far from 0 or too close; accepted: bounds from -1e15 to 1e15

-- title: a quantile that is no fraction
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, quantile_cont(least(greatest(age, 0), 100), 2) FROM visits GROUP BY sex
-- refused: line 1, column 61: a quantile is a literal from 0 to 1; accepted: quantile_cont(column, 0.5)

-- title: a quantile read from the data
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, quantile_cont(least(greatest(age, 0), 100), age) FROM visits GROUP BY sex
-- refused: line 1, column 61: a quantile is a literal from 0 to 1; accepted: quantile_cont(column, 0.5)

-- title: too many quantiles
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, approx_quantiles(least(greatest(age, 0), 100), 1000) FROM visits GROUP BY sex
-- refused: line 1, column 61: approx_quantiles takes the number of parts; accepted: approx_quantiles(column, 4)

-- title: the largest values
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, max(age, 3) FROM visits GROUP BY sex
-- refused: line 1, column 61: max takes one column or expression; accepted: max(column)

-- title: distinct values of a column in bins
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(DISTINCT age) FROM visits GROUP BY sex
-- refused: line 1, column 61: count(DISTINCT ..) takes a column whose values are declared; accepted: the privacy unit's column, or a column with DOMAIN .. IN (..), FROM a public table, BOOLEAN or ENUM

-- title: distinct values of two columns
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(DISTINCT sex, ward) FROM visits GROUP BY sex
-- refused: line 1, column 61: count(DISTINCT ..) of several columns is refused; accepted: count(DISTINCT column)

-- title: a sum of distinct values
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, sum(DISTINCT code) FROM visits GROUP BY sex
-- refused: line 1, column 61: sum(DISTINCT ..) is refused; accepted: count(DISTINCT column)

-- title: a division by what may be zero
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, sum(age / code) FROM visits GROUP BY sex
-- refused: line 1, column 65: these values need public bounds; accepted: sum(x, contribution_bounds_per_row => (low, high)), or CLAMP x BETWEEN low AND high in the policy

-- title: a volatile function inside a sum
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, sum(random(), contribution_bounds_per_row => (0, 1)) FROM visits GROUP BY sex
-- refused: line 1, column 65: random() is not deterministic; accepted: a deterministic expression

-- title: a subquery inside an average
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, avg((SELECT max(age) FROM visits), contribution_bounds_per_row => (0, 1)) FROM visits GROUP BY sex
-- refused: line 1, column 65: a subquery in an expression is refused; accepted: a join with a declared public table, or literals

-- title: an error bar of a list
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, dp_stderr(approx_quantiles(least(greatest(age, 0), 100), 4)) FROM visits GROUP BY sex
-- refused: line 1, column 61: dp_stderr takes an aggregate or the alias of one; accepted: dp_stderr(n) where count(*) AS n is selected

-- title: a sum that is to be whole
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, integer = true) sex, sum(least(greatest(age, 0), 100)) FROM visits GROUP BY sex
-- refused: line 1, column 8: nonnegative and integer are for counts, and sum(least(greatest("age", 0), 100)) is none; accepted: round(..) or greatest(.., 0) in the select list

-- title: a target for a sum
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 5) sex, sum(least(greatest(age, 0), 100)) FROM visits GROUP BY sex
-- refused: line 1, column 8: target_stderr is for counts of rows; accepted: epsilon = .. or rho = ..

-- title: weights of other aggregates
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, aggregate_weights = (1, 2, 3)) sex, count(*), sum(least(greatest(age, 0), 100)) FROM visits GROUP BY sex
-- refused: line 1, column 8: 3 aggregate_weights for 2 aggregates; accepted: one weight for each of count(*), sum(least(greatest("age", 0), 100))

-- title: quantiles over prefixes
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) age, median(least(greatest(code, 0), 5)) FROM visits GROUP BY PREFIXES (age)
-- refused: line 1, column 8: median(least(greatest("code", 0), 5)) is not answered for PREFIXES or RANGES; accepted: GROUP BY the column itself

-- title: an average of a text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) avg(sex) FROM visits
-- refused: line 1, column 60: sex is VARCHAR; accepted: a numeric column; or TRY_CAST(sex AS DOUBLE), contribution_bounds_per_row => (low, high)

-- title: a sum of a date
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sum(day) FROM visits
-- refused: line 1, column 60: day is DATE; accepted: a numeric column

-- title: units by an expression that joins values of a domain
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) ward = 'w1' AS first, count(DISTINCT id) FROM patients GROUP BY 1
-- refused: line 1, column 8: count(DISTINCT "id") bounds what a unit adds to a group, and groups of an expression are made of several values each; accepted: one plain GROUP BY of columns; of an expression: a stored column of it with a DOMAIN

-- title: units in a cube
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) ward, count(DISTINCT id) FROM patients GROUP BY CUBE (ward)
-- refused: line 1, column 8: count(DISTINCT "id") bounds what a unit adds to a group, and these groups overlap; accepted: one plain GROUP BY of columns
