-- title: the shortest clause
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*) FROM requests
-- exact: SELECT count(*) FROM requests

-- title: the clause on lines of its own
SELECT
  WITH DIFFERENTIAL_PRIVACY
    OPTIONS(epsilon = 100, delta = .0001, privacy_unit_column = professor)
    item,
    COUNT(*) AS times_requested
FROM requests
GROUP BY item
-- exact: SELECT item, count(*) FROM requests GROUP BY item

-- title: the clause in small letters
select with differential_privacy options(epsilon = 100) item, count(*) from requests group by item
-- exact: SELECT item, count(*) FROM requests GROUP BY item

-- title: epsilon and delta
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, delta = 1e-5) item, COUNT(*) FROM requests GROUP BY item
-- exact: SELECT item, count(*) FROM requests GROUP BY item

-- title: epsilon as a whole number, delta as a decimal
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, delta = 0.001) item, COUNT(*) FROM requests GROUP BY item
-- exact: SELECT item, count(*) FROM requests GROUP BY item

-- title: privacy_unit_column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, privacy_unit_column = professor) item, COUNT(*) FROM requests GROUP BY item
-- exact: SELECT item, count(*) FROM requests GROUP BY item

-- title: privacy_unit_column in capitals
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, privacy_unit_column = PROFESSOR) COUNT(*) FROM requests
-- exact: SELECT count(*) FROM requests

-- title: another privacy_unit_column than the policy's
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, privacy_unit_column = item) COUNT(*) FROM requests
-- refused: line 1, column 8: privacy_unit_column differs from the policy's unit; accepted: professor

-- title: privacy_unit_column as a text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, privacy_unit_column = 'professor') COUNT(*) FROM requests
-- exact: SELECT count(*) FROM requests

-- title: max_rows_contributed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, max_rows_contributed = 4) item, COUNT(*) FROM requests GROUP BY item
-- exact: SELECT item, count(*) FROM requests GROUP BY item

-- title: max_rows_contributed above the policy's
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, max_rows_contributed = 40) item, COUNT(*) FROM requests GROUP BY item
-- refused: line 1, column 8: max_rows_contributed is above the policy's MAX ROWS; accepted: at most 4

-- title: max_groups_contributed with public groups
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, max_groups_contributed = 4) item, COUNT(*) FROM requests GROUP BY item
-- exact: SELECT item, count(*) FROM requests GROUP BY item

-- title: max_groups_contributed and max_rows_contributed
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, delta = 1e-4, group_selection_strategy = GAUSSIAN_THRESHOLD, max_groups_contributed = 1, max_rows_contributed = 1) note, COUNT(*) FROM requests GROUP BY note HAVING COUNT(*) > 1000000
-- exact: SELECT note, count(*) FROM requests GROUP BY note HAVING count(*) > 1000000

-- title: LAPLACE_THRESHOLD
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, delta = 1e-4, group_selection_strategy = LAPLACE_THRESHOLD, max_groups_contributed = 4) note, COUNT(*) FROM requests GROUP BY note
-- exact: SELECT note, count(*) FROM requests GROUP BY note

-- title: LAPLACE_THRESHOLD without delta
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, group_selection_strategy = LAPLACE_THRESHOLD) note, COUNT(*) FROM requests GROUP BY note
-- refused: line 1, column 8: selected keys cost a delta; accepted: epsilon = .. and delta = ..

-- title: min_privacy_units_per_group
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, delta = 1e-4, group_selection_strategy = LAPLACE_THRESHOLD, min_privacy_units_per_group = 5, max_groups_contributed = 4) note, COUNT(*) FROM requests GROUP BY note
-- exact: SELECT note, count(*) FROM requests GROUP BY note

-- title: min_privacy_units_per_group with public groups
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, min_privacy_units_per_group = 5) item, COUNT(*) FROM requests GROUP BY item
-- refused: line 1, column 87: min_privacy_units_per_group does not apply to public groups; accepted: MAX ROWS in the policy, max_rows_contributed; or group_selection_strategy = GAUSSIAN_THRESHOLD

-- title: PUBLIC_GROUPS with a declared domain
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, group_selection_strategy = PUBLIC_GROUPS) item, COUNT(*) FROM requests GROUP BY item
-- exact: SELECT item, count(*) FROM requests GROUP BY item

-- title: PUBLIC_GROUPS as a text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, group_selection_strategy = 'PUBLIC_GROUPS') item, COUNT(*) FROM requests GROUP BY item
-- exact: SELECT item, count(*) FROM requests GROUP BY item

-- title: PUBLIC_GROUPS of a column without a domain
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, group_selection_strategy = PUBLIC_GROUPS) note, COUNT(*) FROM requests GROUP BY note
-- refused: line 1, column 137: the column 'note' has no public domain; accepted: a DOMAIN for it in the policy of requests, or a column that has one (item), or group_selection_strategy = GAUSSIAN_THRESHOLD with a delta

-- title: an unknown strategy
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, group_selection_strategy = RANDOM) item, COUNT(*) FROM requests GROUP BY item
-- refused: line 1, column 84: group_selection_strategy has no such value; accepted: PUBLIC_GROUPS, with a DOMAIN in the policy; LAPLACE_THRESHOLD or GAUSSIAN_THRESHOLD, with a delta

-- title: no options
SELECT WITH DIFFERENTIAL_PRIVACY COUNT(*) FROM requests
-- refused: line 1, column 8: the price is missing; accepted: OPTIONS (epsilon = ..), or epsilon and delta, or rho = .., or target_stderr = ..

-- title: empty options
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS() COUNT(*) FROM requests
-- refused: line 1, column 8: the price is missing; accepted: OPTIONS (epsilon = ..), or epsilon and delta, or rho = .., or target_stderr = ..

-- title: no epsilon
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(delta = 1e-5) COUNT(*) FROM requests
-- refused: line 1, column 50: a delta alone is no price; accepted: epsilon = .. and delta = ..

-- title: an epsilon of zero
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0) COUNT(*) FROM requests
-- refused: line 1, column 52: epsilon is out of range; accepted: epsilon from 1e-09 to 100

-- title: a negative epsilon
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = -1) COUNT(*) FROM requests
-- refused: line 1, column 52: epsilon is not a positive number; accepted: epsilon from 1e-09 to 100

-- title: epsilon without noise, as the documentation's examples show
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1e20, delta = .01) item, COUNT(*) FROM requests GROUP BY item
-- refused: line 1, column 52: epsilon is out of range; accepted: epsilon from 1e-09 to 100

-- title: a delta of one
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, delta = 1) COUNT(*) FROM requests
-- refused: line 1, column 63: delta is out of range; accepted: delta above 0 to 0.01

-- title: epsilon as a parameter
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = @eps) COUNT(*) FROM requests
-- refused: line 1, column 52: epsilon is not a positive number; accepted: epsilon from 1e-09 to 100

-- title: epsilon as an expression
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1 + 1) COUNT(*) FROM requests
-- refused: line 1, column 52: epsilon is not a positive number; accepted: epsilon from 1e-09 to 100

-- title: epsilon twice
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, epsilon = 2) COUNT(*) FROM requests
-- refused: line 1, column 55: the option epsilon is given twice; accepted: each option once

-- title: an unknown option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, noise = 'none') COUNT(*) FROM requests
-- refused: line 1, column 55: the option 'noise' is unknown; accepted: epsilon, delta, rho, privacy_unit_column, max_rows_contributed, max_groups_contributed, group_selection_strategy, min_privacy_units_per_group, strategy, budgets, consistency, nonnegative, integer, confidence, refresh, weights, planning_seconds, target_stderr, strategy_table, aggregate_weights, quantiles, quantile_intervals, max_norm_contributed, max_sum_norm_contributed, .. (docs/sql.md has all 42)

-- title: the older name kappa
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, kappa = 2) COUNT(*) FROM requests
-- refused: line 1, column 55: the option 'kappa' is unknown; accepted: max_groups_contributed, of epsilon, delta, rho, privacy_unit_column, max_rows_contributed, max_groups_contributed, group_selection_strategy, min_privacy_units_per_group, strategy, budgets, consistency, nonnegative, integer, confidence, refresh, weights, planning_seconds, target_stderr, strategy_table, aggregate_weights, quantiles, quantile_intervals, max_norm_contributed, max_sum_norm_contributed, .. (docs/sql.md has all 42)

-- title: the older name k_threshold
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, k_threshold = 2) COUNT(*) FROM requests
-- refused: line 1, column 55: the option 'k_threshold' is unknown; accepted: min_privacy_units_per_group, of epsilon, delta, rho, privacy_unit_column, max_rows_contributed, max_groups_contributed, group_selection_strategy, min_privacy_units_per_group, strategy, budgets, consistency, nonnegative, integer, confidence, refresh, weights, planning_seconds, target_stderr, strategy_table, aggregate_weights, quantiles, quantile_intervals, max_norm_contributed, max_sum_norm_contributed, .. (docs/sql.md has all 42)

-- title: COUNT of a column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(note) FROM requests GROUP BY item
-- exact: SELECT item, count(note) FROM requests GROUP BY item

-- title: COUNT with bounds of a group
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*, contribution_bounds_per_group => (0, 4)) FROM requests GROUP BY item
-- exact: SELECT item, count(*) FROM requests GROUP BY item

-- title: COUNT of a column with bounds of a group
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(note, contribution_bounds_per_group => (0, 4)) FROM requests GROUP BY item
-- exact: SELECT item, count(note) FROM requests GROUP BY item

-- title: COUNT with bounds of a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*, contribution_bounds_per_row => (0, 4)) FROM requests
-- refused: line 1, column 57: contribution_bounds_per_row does not apply to count; accepted: count(*, contribution_bounds_per_group => (0, high))

-- title: COUNT(DISTINCT the privacy unit)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(DISTINCT professor) FROM requests
-- exact: SELECT count(DISTINCT professor) FROM requests

-- title: COUNTIF
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNTIF(quantity > 20) FROM requests
-- exact: SELECT count_if(quantity > 20) FROM requests

-- title: COUNT_IF
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT_IF(quantity > 20) FROM requests
-- exact: SELECT count_if(quantity > 20) FROM requests

-- title: SUM of a clamped column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, SUM(quantity) FROM requests GROUP BY item
-- exact: SELECT item, sum(quantity) FROM requests GROUP BY item

-- title: SUM with bounds of a group
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, SUM(quantity, contribution_bounds_per_group => (0, 200)) FROM requests GROUP BY item
-- exact: SELECT item, sum(quantity) FROM requests GROUP BY item

-- title: SUM with bounds of a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, SUM(quantity, contribution_bounds_per_row => (0, 100)) FROM requests GROUP BY item
-- exact: SELECT item, sum(quantity) FROM requests GROUP BY item

-- title: SUM that nothing bounds
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) SUM(price) FROM requests
-- refused: line 1, column 61: these values need public bounds; accepted: sum(x, contribution_bounds_per_row => (low, high)), or CLAMP x BETWEEN low AND high in the policy, or max_norm_contributed = 'private'

-- title: SUM with bounds for a column without a clamp
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) SUM(price, contribution_bounds_per_row => (0, 10)) FROM requests
-- exact: SELECT sum(price) FROM requests

-- title: AVG of a clamped column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, AVG(quantity) AS average_quantity FROM requests GROUP BY item
-- exact: SELECT item, avg(quantity) FROM requests GROUP BY item

-- title: AVG with bounds of a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, AVG(quantity, contribution_bounds_per_row => (0, 100)) FROM requests GROUP BY item
-- exact: SELECT item, avg(quantity) FROM requests GROUP BY item

-- title: AVG with bounds of a group is of the units' averages
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) AVG(quantity, contribution_bounds_per_group => (0, 100)) FROM requests
-- exact: SELECT avg(a) FROM (SELECT avg(quantity) AS a FROM requests GROUP BY professor)

-- title: VAR_POP with bounds of a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) VAR_POP(quantity, contribution_bounds_per_row => (0, 100)) FROM requests
-- exact: SELECT var_pop(quantity) FROM requests

-- title: STDDEV_POP with bounds of a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) STDDEV_POP(quantity, contribution_bounds_per_row => (0, 100)) FROM requests
-- exact: SELECT stddev_pop(quantity) FROM requests

-- title: PERCENTILE_CONT with bounds of a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) PERCENTILE_CONT(quantity, 0.5, contribution_bounds_per_row => (0, 100)) FROM requests
-- exact: SELECT quantile_cont(quantity, 0.5) FROM requests

-- title: PERCENTILE_CONT of groups
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, PERCENTILE_CONT(quantity, 0.9) FROM requests GROUP BY item
-- exact: SELECT item, quantile_cont(quantity, 0.9) FROM requests GROUP BY item

-- title: APPROX_QUANTILES with bounds of a row
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) APPROX_QUANTILES(quantity, 2, contribution_bounds_per_row => (0, 100)) FROM requests
-- exact: SELECT [min(quantity), median(quantity), max(quantity)] FROM requests

-- title: two aggregates share one epsilon
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) AS n, SUM(quantity) AS q FROM requests GROUP BY item
-- exact: SELECT item, count(*), sum(quantity) FROM requests GROUP BY item

-- title: a ratio of two aggregates
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) SUM(quantity) / COUNT(*) FROM requests
-- exact: SELECT sum(quantity) / count(*) FROM requests

-- title: MIN and MAX, which BigQuery does not answer
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) MIN(quantity), MAX(quantity) FROM requests
-- exact: SELECT min(quantity), max(quantity) FROM requests

-- title: ARRAY_AGG
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) ARRAY_AGG(quantity) FROM requests
-- refused: line 1, column 57: the aggregate array_agg is refused; accepted: count, count(DISTINCT ..), sum, avg, var_pop, var_samp, stddev, min, max, median, quantile_cont, approx_quantiles

-- title: STRING_AGG
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) STRING_AGG(item) FROM requests
-- refused: line 1, column 57: the aggregate string_agg is refused; accepted: count, count(DISTINCT ..), sum, avg, var_pop, var_samp, stddev, min, max, median, quantile_cont, approx_quantiles

-- title: ANY_VALUE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) ANY_VALUE(item) FROM requests
-- refused: line 1, column 57: IGNORENULLS is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: LOGICAL_OR
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) LOGICAL_OR(quantity > 3) FROM requests
-- refused: line 1, column 57: the aggregate logical_or is refused; accepted: count, count(DISTINCT ..), sum, avg, var_pop, var_samp, stddev, min, max, median, quantile_cont, approx_quantiles

-- title: APPROX_COUNT_DISTINCT of a column without values
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) APPROX_COUNT_DISTINCT(note) FROM requests
-- refused: line 1, column 57: count(DISTINCT ..) takes a column whose values are declared; accepted: the privacy unit's column, or a column with DOMAIN .. IN (..), FROM a public table, BOOLEAN or ENUM

-- title: the deprecated ANON_COUNT
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) ANON_COUNT(*) FROM requests
-- refused: line 1, column 57: ANON_COUNT(..) is deprecated and refused; accepted: COUNT(*), or COUNT(*, contribution_bounds_per_group => (low, high))

-- title: the deprecated ANON_SUM
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) ANON_SUM(quantity) FROM requests
-- refused: line 1, column 57: ANON_SUM(..) is deprecated and refused; accepted: SUM(x), or SUM(x, contribution_bounds_per_group => (low, high))

-- title: the deprecated ANON_AVG
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) ANON_AVG(quantity) FROM requests
-- refused: line 1, column 57: ANON_AVG(..) is deprecated and refused; accepted: AVG(x), or AVG(x, contribution_bounds_per_group => (low, high))

-- title: the deprecated ANON_VAR_POP
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) ANON_VAR_POP(quantity) FROM requests
-- refused: line 1, column 57: ANON_VAR_POP(..) is deprecated and refused; accepted: VAR_POP(x, contribution_bounds_per_row => (low, high))

-- title: the deprecated ANON_STDDEV_POP
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) ANON_STDDEV_POP(quantity) FROM requests
-- refused: line 1, column 57: ANON_STDDEV_POP(..) is deprecated and refused; accepted: STDDEV_POP(x, contribution_bounds_per_row => (low, high))

-- title: the deprecated ANON_PERCENTILE_CONT
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) ANON_PERCENTILE_CONT(quantity, 0.5) FROM requests
-- refused: line 1, column 57: ANON_PERCENTILE_CONT(..) is deprecated and refused; accepted: PERCENTILE_CONT(x, 0.5, contribution_bounds_per_row => (low, high))

-- title: the deprecated ANON_QUANTILES
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) ANON_QUANTILES(quantity, 4) FROM requests
-- refused: line 1, column 57: ANON_QUANTILES(..) is deprecated and refused; accepted: APPROX_QUANTILES(x, 4, contribution_bounds_per_row => (low, high))

-- title: CLAMPED BETWEEN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) SUM(quantity CLAMPED BETWEEN 0 AND 100) FROM requests
-- refused: line 1, column 70: CLAMPED BETWEEN is deprecated and refused; accepted: contribution_bounds_per_group => (low, high)

-- title: the deprecated ANON_SUM with CLAMPED BETWEEN
SELECT WITH ANONYMIZATION OPTIONS(epsilon = 10, delta = .01, kappa = 2) item, ANON_SUM(quantity CLAMPED BETWEEN 0 AND 100) FROM requests GROUP BY item
-- refused: line 1, column 13: SELECT WITH ANONYMIZATION is deprecated and refused; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..)

-- title: the deprecated clause
SELECT WITH ANONYMIZATION OPTIONS(epsilon = 10, delta = .01) item, COUNT(*) FROM requests GROUP BY item
-- refused: line 1, column 13: SELECT WITH ANONYMIZATION is deprecated and refused; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..)

-- title: WHERE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) FROM requests WHERE quantity > 20 GROUP BY item
-- exact: SELECT item, count(*) FROM requests WHERE quantity > 20 GROUP BY item

-- title: HAVING over the noisy answer
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) AS n FROM requests GROUP BY item HAVING n > 10
-- exact: SELECT item, count(*) AS n FROM requests GROUP BY item HAVING n > 10

-- title: ORDER BY and LIMIT over the noisy answer
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) AS n FROM requests GROUP BY item ORDER BY n DESC LIMIT 1
-- exact: SELECT item, count(*) AS n FROM requests GROUP BY item ORDER BY n DESC LIMIT 1

-- title: GROUP BY positions
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) FROM requests GROUP BY 1
-- exact: SELECT item, count(*) FROM requests GROUP BY item

-- title: GROUP BY ROLLUP, which BigQuery refuses
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) FROM requests GROUP BY ROLLUP (item)
-- exact: SELECT item, count(*) FROM requests GROUP BY ROLLUP (item)

-- title: GROUP BY CUBE, which BigQuery refuses
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) FROM requests GROUP BY CUBE (item)
-- exact: SELECT item, count(*) FROM requests GROUP BY CUBE (item)

-- title: SELECT star
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) * FROM requests
-- refused: line 1, column 57: * is refused: rows are not released; accepted: columns of GROUP BY and count(*)

-- title: a column that is neither grouped nor aggregated
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) quantity, COUNT(*) FROM requests GROUP BY item
-- refused: line 1, column 57: the column 'quantity' is neither grouped nor counted; accepted: a column of GROUP BY, or count(column)

-- title: SELECT DISTINCT
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) DISTINCT item FROM requests
-- refused: line 1, column 57: SELECT DISTINCT is refused; accepted: GROUP BY

-- title: no aggregate
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item FROM requests GROUP BY item
-- refused: line 1, column 1: nothing is counted; accepted: count(*), count(column) or count(*) FILTER (WHERE ..)

-- title: grouping by the privacy unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) professor, COUNT(*) FROM requests GROUP BY professor
-- refused: line 1, column 100: the column 'professor' has no public domain; accepted: a DOMAIN for it in the policy of requests, or a column that has one (item), or group_selection_strategy = GAUSSIAN_THRESHOLD with a delta

-- title: public groups by RIGHT OUTER JOIN of a public table, USING
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, group_selection_strategy = PUBLIC_GROUPS) item, COUNT(*) FROM requests RIGHT OUTER JOIN (SELECT DISTINCT item FROM items) USING (item) GROUP BY item
-- exact: SELECT item, count(professor) FROM requests RIGHT JOIN items USING (item) GROUP BY item

-- title: public groups by RIGHT OUTER JOIN, ON
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, group_selection_strategy = PUBLIC_GROUPS) items.item, COUNT(*) FROM requests RIGHT OUTER JOIN items ON requests.item = items.item GROUP BY items.item
-- exact: SELECT items.item, count(professor) FROM requests RIGHT JOIN items ON requests.item = items.item GROUP BY items.item

-- title: public groups by LEFT OUTER JOIN, the public table first
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, group_selection_strategy = PUBLIC_GROUPS) items.item, COUNT(*) FROM items LEFT OUTER JOIN requests ON requests.item = items.item GROUP BY items.item
-- exact: SELECT items.item, count(professor) FROM items LEFT JOIN requests ON requests.item = items.item GROUP BY items.item

-- title: public groups from a table that is not declared public
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, group_selection_strategy = PUBLIC_GROUPS) item, COUNT(*) FROM requests RIGHT OUTER JOIN (SELECT DISTINCT item FROM hidden) USING (item) GROUP BY item
-- refused: line 1, column 153: DISTINCT over private rows is refused; accepted: count(*), count(column) and count(*) FILTER (WHERE ..)

-- title: public groups from private rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, group_selection_strategy = PUBLIC_GROUPS) item, COUNT(*) FROM requests RIGHT OUTER JOIN (SELECT DISTINCT item FROM requests) USING (item) GROUP BY item
-- refused: line 1, column 153: DISTINCT over private rows is refused; accepted: count(*), count(column) and count(*) FILTER (WHERE ..)

-- title: a join with a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) kind, COUNT(*) FROM requests JOIN items USING (item) GROUP BY kind
-- exact: SELECT kind, count(professor) FROM items LEFT JOIN requests USING (item) GROUP BY kind

-- title: a join of private tables on the privacy unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100, max_rows_contributed = 8) rank, COUNT(*) FROM requests JOIN staff ON requests.professor = staff.professor GROUP BY rank
-- exact: SELECT rank, count(*) FROM requests JOIN staff ON requests.professor = staff.professor GROUP BY rank

-- title: a join of private tables USING the privacy unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) rank, SUM(quantity) FROM requests JOIN staff USING (professor) GROUP BY rank
-- exact: SELECT rank, sum(quantity) FROM requests JOIN staff USING (professor) GROUP BY rank

-- title: a join of private tables on another column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*) FROM requests AS a JOIN requests AS b ON a.item = b.item
-- refused: line 1, column 107: joins between tables containing private data must join on the privacy unit column in each table; accepted: ON a.professor = b.professor, joined by AND with other conditions

-- title: a join of private tables without ON
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*) FROM requests CROSS JOIN staff
-- refused: line 1, column 80: a cross join is refused; accepted: INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of tables with one privacy unit ON equal units or references

-- title: a comma join of private tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*) FROM requests AS r, staff AS s WHERE r.professor = s.professor
-- refused: line 1, column 84: a cross join is refused; accepted: INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of tables with one privacy unit ON equal units or references

-- title: a subquery that filters
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) FROM (SELECT item FROM requests WHERE quantity > 20) GROUP BY item
-- exact: SELECT item, count(*) FROM requests WHERE quantity > 20 GROUP BY item

-- title: a CTE that filters
WITH large AS (SELECT * FROM requests WHERE quantity > 20) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) FROM large GROUP BY item
-- exact: SELECT item, count(*) FROM requests WHERE quantity > 20 GROUP BY item

-- title: a subquery with a row for each unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*) FROM (SELECT professor, COUNT(*) AS n FROM requests GROUP BY professor) WHERE n > 2
-- exact: SELECT count(*) FROM (SELECT professor, count(*) AS n FROM requests GROUP BY professor) WHERE n > 2

-- title: a subquery in WHERE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*) FROM requests WHERE item IN (SELECT item FROM items)
-- exact: SELECT count(*) FROM requests WHERE item IN (SELECT item FROM items)

-- title: UNION ALL inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) FROM (SELECT item, professor FROM requests UNION ALL SELECT item, professor FROM requests) GROUP BY item
-- exact: SELECT item, 2 * count(*) FROM requests GROUP BY item

-- title: UNION DISTINCT inside
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) FROM (SELECT item FROM requests UNION DISTINCT SELECT item FROM requests) GROUP BY item
-- refused: line 1, column 78: UNION over private rows is refused; accepted: UNION ALL of SELECTs over tables with one privacy unit

-- title: an annotated query inside another query
SELECT max(n) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) item, COUNT(*) AS n FROM requests GROUP BY item)
-- exact: SELECT max(n) FROM (SELECT item, count(*) AS n FROM requests GROUP BY item)

-- title: window functions over private rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*) OVER () FROM requests
-- refused: line 1, column 1: nothing is counted; accepted: count(*), count(column) or count(*) FILTER (WHERE ..)

-- title: TABLESAMPLE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*) FROM requests TABLESAMPLE SYSTEM (10 PERCENT)
-- refused: line 1, column 80: SAMPLE over private rows is refused; accepted: all rows: sampling is not a guarantee

-- title: UNNEST
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*) FROM requests, UNNEST([1, 2])
-- refused: line 1, column 81: UNNEST in FROM is refused; accepted: a table, a subquery or a CTE that filters

-- title: a table in backquotes
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*) FROM `requests`
-- refused: line 1, column 71: DuckDB has no backticks; accepted: double quotes around a name: "name"

-- title: a query over public data alone
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) kind, COUNT(*) FROM items GROUP BY kind
-- refused: line 1, column 77: 'items' is public: there is nothing to protect; accepted: plain SQL without WITH DIFFERENTIAL_PRIVACY

-- title: a table without a policy
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) COUNT(*) FROM hidden
-- refused: line 1, column 71: the table 'hidden' has no privacy policy, so nothing is answered from it; accepted: a table with a policy (CREATE PRIVACY POLICY ON ..), or DECLARE PUBLIC TABLE if it is public

-- title: SELECT AS STRUCT
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 100) AS STRUCT COUNT(*) FROM requests
-- refused: line 1, column 1: SELECT AS STRUCT or VALUE is refused; accepted: a list of columns
