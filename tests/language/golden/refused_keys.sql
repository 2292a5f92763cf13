-- title: a pure budget has no delta for keys
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = LAPLACE_THRESHOLD) note, count(*) FROM visits GROUP BY note
-- refused: line 1, column 8: selected keys cost a delta, and this table's budget is pure epsilon; accepted: a DOMAIN for the keys, or BUDGET (epsilon = .., delta = .., delta_keys = ..) in the policy

-- title: a budget that keeps no delta for keys
-- before: sql CREATE TABLE calls AS SELECT 'a' AS reason
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT ROW, BUDGET (epsilon = 2, delta = 1e-6))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD) reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 8: this table's budget keeps no delta for selected keys; accepted: BUDGET (epsilon = .., delta = .., delta_keys = ..) in the policy

-- title: a threshold without a delta
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, group_selection_strategy = GAUSSIAN_THRESHOLD) reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 8: selected keys cost a delta; accepted: epsilon = .. and delta = ..

-- title: a rho without a delta
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.01, group_selection_strategy = GAUSSIAN_THRESHOLD) reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 8: selected keys cost a delta; accepted: epsilon = .. and delta = ..

-- title: a rho and a delta without a threshold
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.01, delta = 1e-7) sex, count(*) FROM calls GROUP BY sex
-- refused: line 1, column 63: rho takes no delta; accepted: rho = .. alone, or epsilon = .. and delta = ..

-- title: a Laplace threshold for rho
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.01, delta = 1e-7, group_selection_strategy = LAPLACE_THRESHOLD) reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 8: LAPLACE_THRESHOLD is paid with an epsilon; accepted: epsilon = .. and delta = ..

-- title: more delta for keys than the budget keeps
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-4, group_selection_strategy = GAUSSIAN_THRESHOLD) reason, count(*) FROM calls GROUP BY reason
-- refused: the statement asks for delta for keys = 5e-5 but the budget of memory.main.calls.caller has 5e-7 of 5e-7 left; accepted: delta for keys of at most 5e-7; GAUSSIAN_THRESHOLD, which takes a part of its delta; for the owner ALTER PRIVACY POLICY ON .. SET BUDGET (epsilon = .., delta = .., delta_keys = ..)

-- title: a delta far too small for keys
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-31, group_selection_strategy = GAUSSIAN_THRESHOLD) reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 8: this delta is too small for selected keys; accepted: a delta of at least 1e-30

-- title: no groups to select
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD) count(*) FROM calls
-- refused: line 1, column 8: there are no groups to select; accepted: GROUP BY, or the statement without a threshold

-- title: a cube of selected keys
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD) reason, ward, count(*) FROM calls GROUP BY CUBE (reason, ward)
-- refused: line 1, column 8: grouping sets of selected keys are refused; accepted: one plain GROUP BY with a threshold

-- title: two grouping sets of selected keys
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD) reason, ward, count(*) FROM calls GROUP BY GROUPING SETS ((reason), (ward))
-- refused: line 1, column 8: grouping sets of selected keys are refused; accepted: one plain GROUP BY with a threshold

-- title: prefixes of selected keys
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD) sex, count(*) FROM calls GROUP BY PREFIXES (sex)
-- refused: line 1, column 8: PREFIXES and RANGES of selected keys are refused; accepted: one plain GROUP BY with a threshold

-- title: a key of a floating type
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD) score, count(*) FROM calls GROUP BY score
-- refused: line 1, column 153: a key of type DOUBLE has several texts for one value, or parts, and is not selected; accepted: VARCHAR, whole numbers, DECIMAL, BOOLEAN, DATE, TIMESTAMP, TIME or UUID; or a CAST to one of them

-- title: a key whose text depends on the session
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD) at, count(*) FROM calls GROUP BY at
-- refused: line 1, column 150: a key of type TIMESTAMP WITH TIME ZONE has several texts for one value, or parts, and is not selected; accepted: VARCHAR, whole numbers, DECIMAL, BOOLEAN, DATE, TIMESTAMP, TIME or UUID; or a CAST to one of them

-- title: an expression over a domain and free text
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD) concat(sex, ward) AS k, count(*) FROM calls GROUP BY k
-- refused: line 1, column 124: an expression over 'sex', which is public or has a domain, and columns without one; accepted: keys over columns with a domain, and others over columns without

-- title: a volatile key
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD) reason || random() AS k, count(*) FROM calls GROUP BY k
-- refused: line 1, column 127: random() is not deterministic; accepted: a deterministic expression

-- title: a key that DuckDB does not know
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD) year(reason) AS k, count(*) FROM calls GROUP BY k
-- refused: line 1, column 117: DuckDB does not accept this: ..; accepted: DuckDB's SQL

-- title: a strategy for selected keys
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD, strategy = 'identity') reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 128: strategy does not apply to keys that are selected; accepted: the statement without it

-- title: a target for selected keys
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (target_stderr = 5, group_selection_strategy = GAUSSIAN_THRESHOLD) reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 59: target_stderr does not apply to keys that are selected; accepted: the statement without it

-- title: other without a threshold
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, other = TRUE) sex, count(*) FROM calls GROUP BY sex
-- refused: line 1, column 78: other does not apply to public groups; accepted: MAX ROWS in the policy, max_rows_contributed; or group_selection_strategy = GAUSSIAN_THRESHOLD

-- title: other that is no flag
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD, other = 'rest') reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 125: other is TRUE or FALSE; accepted: TRUE or FALSE

-- title: an unknown way to select
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = EXACT) reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 97: group_selection_strategy has no such value; accepted: PUBLIC_GROUPS, with a DOMAIN in the policy; LAPLACE_THRESHOLD or GAUSSIAN_THRESHOLD, with a delta

-- title: no groups allowed
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD, max_groups_contributed = 0) reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 142: max_groups_contributed is out of range; accepted: a whole number above 0

-- title: fewer groups of a row than its joins make
-- before: sql CREATE TABLE events AS SELECT 'r' || (i % 3) AS reason, 'w' || (i % 3) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON events (PRIVACY UNIT ROW, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD, max_groups_contributed = 1) e.reason, o.offer, count(*) FROM events AS e JOIN offers AS o ON e.ward = o.ward GROUP BY ALL
-- refused: line 1, column 8: one row is in up to 3 groups through the joins, and PRIVACY UNIT ROW cannot bound them; accepted: max_groups_contributed of at least 3, or none

-- title: units of a row that joins multiply
-- before: sql CREATE TABLE events AS SELECT 'r' || (i % 3) AS reason, 'w' || (i % 3) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON events (PRIVACY UNIT ROW, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, group_selection_strategy = GAUSSIAN_THRESHOLD, min_privacy_units_per_group = 5) e.reason, o.offer, count(*) FROM events AS e JOIN offers AS o ON e.ward = o.ward GROUP BY ALL
-- refused: line 1, column 8: min_privacy_units_per_group needs rows that joins do not multiply, or a unit's column; accepted: the statement without it

-- title: a column without a domain names the option
-- before: sql CREATE TABLE calls AS SELECT i // 3 AS caller, 'r' || (i % 3) AS reason, 'canary' AS name, i / 7 AS score, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, 'FM'[i % 2 + 1] AS sex, 'w' || (i % 5) AS ward FROM range(90) AS r(i)
-- before: CREATE PRIVACY POLICY ON calls (PRIVACY UNIT caller MAX ROWS 3, BUDGET (epsilon = 2, delta = 1e-6, delta_keys = 5e-7), DOMAIN sex IN ('F', 'M'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6) reason, count(*) FROM calls GROUP BY reason
-- refused: line 1, column 107: the column 'reason' has no public domain; accepted: a DOMAIN for it in the policy of calls, or a column that has one (sex), or group_selection_strategy = GAUSSIAN_THRESHOLD with a delta

-- title: a private table of a column without a domain, which no threshold helps
CREATE PRIVATE TABLE made OPTIONS (epsilon = 1) AS SELECT sex, note FROM visits WORKLOAD MARGINALS (2)
-- refused: line 1, column 64: the column 'note' has no public domain; accepted: a DOMAIN for it in the policy of visits, or a column that has one (sex, age, ward, urgent, grade, day, Straße, odd "name, score, code)

-- title: a stream of a column without a domain
CREATE PRIVATE STREAM monthly OPTIONS (epsilon = 1, periods = 3) AS SELECT day, note, count(*) AS n FROM visits GROUP BY day, note
-- refused: line 1, column 127: the column 'note' has no public domain; accepted: a DOMAIN for it in the policy of visits, or a column that has one (sex, age, ward, urgent, grade, day, Straße, odd "name, score, code)

-- title: a summary of a column without a domain
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, summary = 'filter') note, count(*) FROM visits GROUP BY note
-- refused: line 1, column 112: the column 'note' has no public domain; accepted: a DOMAIN for it in the policy of visits, or a column that has one (sex, age, ward, urgent, grade, day, Straße, odd "name, score, code)
