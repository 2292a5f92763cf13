-- title: no options at all
SELECT WITH DIFFERENTIAL_PRIVACY sex, count(*) FROM visits GROUP BY sex
-- refused: line 1, column 8: the price is missing; accepted: OPTIONS (epsilon = ..), or epsilon and delta, or rho = .., or target_stderr = ..

-- title: empty options
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS () count(*) FROM visits
-- refused: line 1, column 8: the price is missing; accepted: OPTIONS (epsilon = ..), or epsilon and delta, or rho = .., or target_stderr = ..

-- title: an unknown option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, kappa = 1) count(*) FROM visits
-- refused: line 1, column 56: the option 'kappa' is unknown; accepted: max_groups_contributed, of epsilon, delta, rho, privacy_unit_column, max_rows_contributed, max_groups_contributed, group_selection_strategy, min_privacy_units_per_group, strategy, budgets, consistency, nonnegative, integer, confidence, refresh, weights, planning_seconds, target_stderr, strategy_table, aggregate_weights, quantiles, quantile_intervals, max_norm_contributed, max_sum_norm_contributed, .. (docs/sql.md has all 42)

-- title: an option twice
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, EPSILON = 2) count(*) FROM visits
-- refused: line 1, column 56: the option epsilon is given twice; accepted: each option once

-- title: an option without a value
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon) count(*) FROM visits
-- refused: line 1, column 43: an option is written name = value; accepted: epsilon, delta, rho, privacy_unit_column, max_rows_contributed, max_groups_contributed, group_selection_strategy, min_privacy_units_per_group, strategy, budgets, consistency, nonnegative, integer, confidence, refresh, weights, planning_seconds, target_stderr, strategy_table, aggregate_weights, quantiles, quantile_intervals, max_norm_contributed, max_sum_norm_contributed, .. (docs/sql.md has all 42)

-- title: options without =
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon 1) count(*) FROM visits
-- refused: line 1, column 51: the SELECT does not parse near '1'; accepted: options with = and commas, as in OPTIONS (epsilon = 1, delta = 1e-7)

-- title: options with an arrow
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta => 1e-7) count(*) FROM visits
-- refused: line 1, column 62: the SELECT does not parse near '=>'; accepted: options with = and commas, as in OPTIONS (epsilon = 1, delta = 1e-7)

-- title: epsilon NaN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = nan) count(*) FROM visits
-- refused: line 1, column 53: epsilon is not a positive number; accepted: epsilon from 1e-09 to 100

-- title: epsilon 'NaN' as text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 'NaN') count(*) FROM visits
-- refused: line 1, column 53: epsilon is not a positive number; accepted: epsilon from 1e-09 to 100

-- title: epsilon infinity
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 'infinity'::DOUBLE) count(*) FROM visits
-- refused: line 1, column 53: epsilon is not a positive number; accepted: epsilon from 1e-09 to 100

-- title: epsilon negative
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = -1) count(*) FROM visits
-- refused: line 1, column 53: epsilon is not a positive number; accepted: epsilon from 1e-09 to 100

-- title: epsilon zero
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0) count(*) FROM visits
-- refused: line 1, column 53: epsilon is out of range; accepted: epsilon from 1e-09 to 100

-- title: epsilon huge
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1e6) count(*) FROM visits
-- refused: line 1, column 53: epsilon is out of range; accepted: epsilon from 1e-09 to 100

-- title: epsilon with a huge exponent
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1e999999) count(*) FROM visits
-- refused: line 1, column 53: epsilon is not a plain number of at most 40 digits; accepted: epsilon from 1e-09 to 100

-- title: epsilon tiny
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1e-30) count(*) FROM visits
-- refused: line 1, column 53: epsilon is out of range; accepted: epsilon from 1e-09 to 100

-- title: epsilon as an expression
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1 + 1) count(*) FROM visits
-- refused: line 1, column 53: epsilon is not a positive number; accepted: epsilon from 1e-09 to 100

-- title: epsilon read from data
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = (SELECT count(*) FROM visits)) count(*) FROM visits
-- refused: line 1, column 53: epsilon is not a positive number; accepted: epsilon from 1e-09 to 100

-- title: delta too large
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 0.5) count(*) FROM visits
-- refused: line 1, column 64: delta is out of range; accepted: delta above 0 to 0.01

-- title: epsilon and rho
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, rho = 0.1) count(*) FROM visits
-- refused: line 1, column 62: epsilon and rho are two prices; accepted: one of them

-- title: delta and rho
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (delta = 1e-6, rho = 0.1) count(*) FROM visits
-- refused: line 1, column 51: rho takes no delta; accepted: rho = .. alone, or epsilon = .. and delta = ..

-- title: delta against a pure budget
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6) count(*) FROM visits
-- refused: line 1, column 8: this table's budget is pure epsilon; accepted: epsilon = .. without delta or rho

-- title: rho against a pure budget
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.1) count(*) FROM visits
-- refused: line 1, column 8: this table's budget is pure epsilon; accepted: epsilon = .. without delta or rho

-- title: the budget overdrawn
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) sex, count(*) FROM trial GROUP BY sex
-- refused: the statement asks for epsilon = 0.5 but the budget of memory.main.trial.ROW has 0.25 of 1 left; accepted: epsilon of at most 0.25

-- title: more than the most of one statement
-- before: ALTER PRIVACY POLICY ON trial SET MAX EPSILON 0.1
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 2) count(*) FROM trial
-- refused: line 1, column 8: the price of one statement is limited; accepted: epsilon of at most 0.1

-- title: another privacy unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, privacy_unit_column = ward) count(*) FROM patients
-- refused: line 1, column 8: privacy_unit_column differs from the policy's unit; accepted: id

-- title: a privacy unit column where rows are the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, privacy_unit_column = patient_id) count(*) FROM visits
-- refused: line 1, column 8: privacy_unit_column differs from the policy's unit; accepted: no privacy_unit_column

-- title: more rows of a unit than the policy allows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_rows_contributed = 3) count(*) FROM patients
-- refused: line 1, column 8: max_rows_contributed is above the policy's MAX ROWS; accepted: at most 2

-- title: zero rows of a unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_rows_contributed = 0) count(*) FROM patients
-- refused: line 1, column 79: max_rows_contributed is out of range; accepted: a whole number above 0

-- title: a threshold without groups
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, group_selection_strategy = LAPLACE_THRESHOLD) count(*) FROM patients
-- refused: line 1, column 8: there are no groups to select; accepted: GROUP BY, or the statement without a threshold

-- title: groups contributed to
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups_contributed = 2) count(*) FROM patients
-- refused: line 1, column 8: max_groups_contributed is of groups, and a group is one value of each key; accepted: GROUP BY of columns, without PREFIXES, RANGES and strategy tables

-- title: units per group
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, min_privacy_units_per_group = 2) count(*) FROM patients
-- refused: line 1, column 86: min_privacy_units_per_group does not apply to public groups; accepted: MAX ROWS in the policy, max_rows_contributed; or group_selection_strategy = GAUSSIAN_THRESHOLD

-- title: an unknown consistency
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, consistency = 'l3') count(*) FROM visits
-- refused: line 1, column 70: consistency has no such value; accepted: 'l2', 'l1', 'linf', 'none'

-- title: unknown budgets
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, budgets = 'equal') count(*) FROM visits
-- refused: line 1, column 66: budgets has no such value; accepted: 'optimal', 'uniform'

-- title: an unknown strategy
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, strategy = 'luck') count(*) FROM visits
-- refused: line 1, column 67: strategy = 'luck' is not known; accepted: one of auto, I, identity, R, residual, O, views, Q, marginals, C, clustering, F, fourier, hierarchy, haar, p_identity, gaussian_optimum; with a + for optimal budgets, as in Q+

-- title: a flag that is no flag
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, nonnegative = 2) count(*) FROM visits
-- refused: line 1, column 70: nonnegative is TRUE or FALSE; accepted: TRUE or FALSE

-- title: confidence below one half
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, confidence = 0.2) count(*) FROM visits
-- refused: confidence is below one half; accepted: confidence from 0.5 to 0.999999

-- title: confidence of certainty
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, confidence = 1) count(*) FROM visits
-- refused: line 1, column 69: confidence is out of range; accepted: confidence from 0.5 to 0.999999

-- title: a tag that is no text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, refresh = now()) count(*) FROM visits
-- refused: line 1, column 66: refresh is not a tag; accepted: a quoted text of at most 100 characters

-- title: a tag that is too long
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, refresh = '<<x * 101>>') count(*) FROM visits
-- refused: line 1, column 66: refresh is not a tag; accepted: a quoted text of at most 100 characters

-- title: a misspelt option
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilonn = 1) count(*) FROM visits
-- refused: line 1, column 43: the option 'epsilonn' is unknown; accepted: epsilon (did you mean that?), or delta, rho, privacy_unit_column, max_rows_contributed, max_groups_contributed, group_selection_strategy, min_privacy_units_per_group, strategy, budgets, consistency, nonnegative, integer, confidence, refresh, weights, planning_seconds, target_stderr, strategy_table, aggregate_weights, quantiles, quantile_intervals, max_norm_contributed, max_sum_norm_contributed, left_out, .. (docs/sql.md has all 42)

-- title: a misspelt option of a private table
CREATE PRIVATE TABLE t OPTIONS (epsilon = 1, round = 4) AS SELECT sex FROM visits WORKLOAD MARGINALS (1)
-- refused: line 1, column 46: the option 'round' is unknown for a private table; accepted: rounds (did you mean that?), or epsilon, delta, rho, privacy_unit_column, max_rows_contributed, refresh, planning_seconds, mechanism, rows, weights, bins, inside, key, ask, update, replays, keep, first, first_share, choice_share, adaptive

-- title: a misspelt option of a session
CREATE PRIVATE SESSION s OPTIONS (epsilon = 1, query = 4) ON visits (ward)
-- refused: line 1, column 48: the option 'query' is unknown for a session; accepted: queries (did you mean that?), or epsilon, delta, rho, privacy_unit_column, max_rows_contributed, refresh, sparsity, beta, updates, alpha, heaviest

-- title: options without the word
SELECT WITH DIFFERENTIAL_PRIVACY (epsilon = 1) sex, count(*) FROM visits GROUP BY sex
-- refused: line 1, column 8: the price is missing; accepted: OPTIONS (epsilon = ..), or epsilon and delta, or rho = .., or target_stderr = ..

-- title: a delta alone
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (delta = 1e-7) count(*) FROM visits
-- refused: line 1, column 51: a delta alone is no price; accepted: epsilon = .. and delta = ..

-- title: a delta beside a target
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 9, delta = 1e-7) count(*) FROM visits
-- refused: line 1, column 70: target_stderr takes no delta; accepted: target_stderr = .. alone

-- title: a flag without its value
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, nonnegative) sex, count(*) FROM visits GROUP BY sex
-- refused: line 1, column 56: an option is written name = value; accepted: nonnegative = TRUE

-- title: the clause without WITH
SELECT DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits
-- refused: line 1, column 37: the SELECT does not parse near '('; accepted: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = ..) ..

-- title: a strategy of Gaussian noise under an epsilon without a delta
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, strategy = 'R') sex, ward, count(*) FROM patients GROUP BY CUBE (sex, ward)
-- refused: strategy = 'R' takes a price with a delta or in rho; accepted: strategy = 'auto', or one of I, O, Q, C, F

-- title: a strategy of ranges for plain groups
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, strategy = 'hierarchy') sex, ward, count(*) FROM patients GROUP BY CUBE (sex, ward)
-- refused: strategy = 'hierarchy' is not known without PREFIXES or RANGES; accepted: one of auto, I, identity, R, residual, O, views, Q, marginals, C, clustering, F, fourier
