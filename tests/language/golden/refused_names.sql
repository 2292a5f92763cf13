-- title: an unknown column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) colour, count(*) FROM visits GROUP BY colour
-- refused: line 1, column 56: there is no column 'colour'; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code

-- title: an unknown column in WHERE, on the second line
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*)
FROM visits WHERE colour = 'red'
-- refused: line 2, column 19: there is no column 'colour'; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code; or the text 'colour' in single quotes

-- title: an unknown table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visitors
-- refused: line 1, column 70: there is no table 'visitors'; accepted: visits (did you mean that?), or a table with a policy, or a declared public one

-- title: a table of another database
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM elsewhere.main.visits
-- refused: line 1, column 70: there is no table 'elsewhere.main.visits'; accepted: a table with a policy, or a declared public one

-- title: a table without a policy
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM secrets GROUP BY sex
-- refused: line 1, column 75: the table 'secrets' has no privacy policy, so nothing is answered from it; accepted: a table with a policy (CREATE PRIVACY POLICY ON ..), or DECLARE PUBLIC TABLE if it is public

-- title: a table that is declared public
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) name, count(*) FROM wards GROUP BY name
-- refused: line 1, column 76: 'wards' is public: there is nothing to protect; accepted: plain SQL without WITH DIFFERENTIAL_PRIVACY

-- title: a view over a private table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visit_view GROUP BY sex
-- refused: line 1, column 75: the view 'visit_view' has no privacy policy, so nothing is answered from it; accepted: a table with a policy (CREATE PRIVACY POLICY ON ..), or DECLARE PUBLIC TABLE if it is public

-- title: the store itself
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM private.dpduck.ledger
-- refused: line 1, column 70: there is no table 'private.dpduck.ledger'; accepted: a table with a policy, or a declared public one

-- title: a catalog view
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM duckdb_tables
-- refused: line 1, column 70: there is no table 'duckdb_tables'; accepted: a table with a policy, or a declared public one

-- title: a file by its name
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM 'visits.parquet'
-- refused: line 1, column 70: there is no table 'visits.parquet'; accepted: a table with a policy, or a declared public one

-- title: a file by a quoted name
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM "visits.csv"
-- refused: line 1, column 70: there is no table 'visits.csv'; accepted: visits (did you mean that?), or a table with a policy, or a declared public one

-- title: a column without a domain
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) note, count(*) FROM visits GROUP BY note
-- refused: line 1, column 92: the column 'note' has no public domain; accepted: a DOMAIN for it in the policy of visits, or a column that has one (sex, age, ward, urgent, grade, day, Straße, odd "name, score, code), or group_selection_strategy = GAUSSIAN_THRESHOLD with a delta

-- title: an expression over a column without a domain
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) charge // 10, count(*) FROM visits GROUP BY ALL
-- refused: line 1, column 56: the column 'charge' has no public domain; accepted: a DOMAIN for it in the policy of visits, or a column that has one (sex, age, ward, urgent, grade, day, Straße, odd "name, score, code), or group_selection_strategy = GAUSSIAN_THRESHOLD with a delta

-- title: a column of another alias
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) v.sex, count(*) FROM visits AS w GROUP BY ALL
-- refused: line 1, column 56: there is no table 'v' in FROM; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code

-- title: a column in two tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) region, count(*) FROM visits JOIN wards ON ward = name JOIN regions ON wards.region = regions.region GROUP BY ALL
-- refused: line 1, column 56: the column 'region' is in more than one place; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code, name, region, code, region, letter

-- title: a column under two names of one subquery
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) a, count(*) FROM (SELECT sex AS a, ward AS a FROM visits) GROUP BY a
-- refused: line 1, column 123: the column 'a' is in more than one place; accepted: a, a

-- title: a column named in full
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) memory.main.visits.sex, count(*) FROM visits GROUP BY ALL
-- refused: line 1, column 56: a column is named with at most its table; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code

-- title: a column that is not grouped
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) ward, count(*) FROM visits GROUP BY sex
-- refused: line 1, column 56: the column 'ward' is neither grouped nor counted; accepted: a column of GROUP BY, or count(column)

-- title: a column in HAVING that is not grouped
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits GROUP BY sex HAVING ward = 'w1'
-- refused: line 1, column 102: the column 'ward' is neither grouped nor counted; accepted: a column of GROUP BY, or count(column)

-- title: a quoted column that does not exist
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) "sex; DROP TABLE visits", count(*) FROM visits GROUP BY 1
-- refused: line 1, column 56: there is no column 'sex; DROP TABLE visits'; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code

-- title: a quoted table that does not exist
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM "visits""; DROP TABLE visits; --"
-- refused: line 1, column 70: there is no table 'visits"; DROP TABLE visits; --'; accepted: a table with a policy, or a declared public one

-- title: a table named by letters that only look alike
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visıts
-- refused: line 1, column 70: there is no table 'visıts'; accepted: visits (did you mean that?), or a table with a policy, or a declared public one

-- title: a column in letters that DuckDB does not fold
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) "STRASSE", count(*) FROM visits GROUP BY ALL
-- refused: line 1, column 56: there is no column 'STRASSE'; accepted: Straße (did you mean that?); all are sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code

-- title: an injection through the name of a column alias is just a name, and what is not grouped stays refused
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) note AS "x FROM secrets --", count(*) FROM visits GROUP BY sex
-- refused: line 1, column 56: the column 'note' is neither grouped nor counted; accepted: a column of GROUP BY, or count(column)

-- title: GROUP BY a position that is not there
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits GROUP BY 3
-- refused: line 1, column 91: GROUP BY has no such position; accepted: 1 .. 2, or a column

-- title: GROUP BY position zero
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits GROUP BY 0
-- refused: line 1, column 91: GROUP BY has no such position; accepted: 1 .. 2, or a column

-- title: ORDER BY a position that is not there
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) FROM visits GROUP BY sex ORDER BY 5
-- refused: line 1, column 104: ORDER BY has no such position; accepted: 1 .. 2

-- title: an aggregate in GROUP BY
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits GROUP BY n
-- refused: line 1, column 56: an aggregate in GROUP BY; accepted: columns and expressions over them

-- title: a constant in GROUP BY
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) 'x' || 'y', count(*) FROM visits GROUP BY 1
-- refused: line 1, column 56: a grouping expression without a column; accepted: an expression over columns with a domain

-- title: rowid
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE rowid < 10
-- refused: line 1, column 83: rowid depends on other rows; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code

-- title: rowid as a key
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) rowid, count(*) FROM visits GROUP BY rowid
-- refused: line 1, column 56: rowid depends on other rows; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code

-- title: a row of the table as a value
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) visits, count(*) FROM visits GROUP BY ALL
-- refused: line 1, column 56: there is no column 'visits'; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code

-- title: an alias of the select list as a column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n, n / 2 AS half FROM visits GROUP BY sex
-- refused: line 1, column 76: 'n' is an alias of this SELECT, not a column; accepted: what it stands for, written again; or a SELECT around this one

-- title: an alias as a column, with GROUP BY ALL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n, rank() OVER (ORDER BY n) FROM visits GROUP BY ALL
-- refused: line 1, column 98: 'n' is an alias of this SELECT, not a column; accepted: what it stands for, written again; or a SELECT around this one

-- title: a statement inside the call of dp
FROM dp($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits $$)
-- refused: line 1, column 6: dp(..) is written inside a statement of dp(); accepted: the statement alone, without FROM dp(..) around it

-- title: a statement inside a call, of whose dollars a shell has made process ids
SELECT * FROM dp_explain(4711 SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits 4711)
-- refused: line 1, column 15: dp_explain( is followed by a number: in double quotes a shell puts its process id in the place of $$; accepted: the statement alone, without FROM dp_explain(..) around it; or between single quotes

-- title: another function of a connection
FROM dp_budget()
-- refused: line 1, column 6: dp_budget(..) is no statement of dp(); accepted: FROM dp_budget(..) by itself, outside dp(..)

-- title: a histogram that is to be replaced
CREATE OR REPLACE PRIVATE HISTOGRAM h OPTIONS (epsilon = 1) ON visits (ward)
-- refused: line 1, column 37: a histogram is not replaced; accepted: DROP PRIVATE HISTOGRAM first, or another name

-- title: a condition that is a text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE sex
-- refused: line 1, column 83: sex is VARCHAR; accepted: a condition such as sex = 'F'

-- title: a part of a condition that is a number
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE urgent AND NOT age
-- refused: line 1, column 98: age is INTEGER; accepted: a condition such as age = 1

-- title: a condition of an aggregate that is a date
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FILTER (WHERE day) AS n FROM visits
-- refused: line 1, column 79: day is DATE; accepted: a condition such as day = DATE '2024-01-31'

-- title: a condition of CASE that is a text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sum(CASE WHEN ward THEN 1 ELSE 0 END) AS n FROM visits
-- refused: line 1, column 70: ward is VARCHAR; accepted: a condition such as ward = 'w0'

-- title: a condition that computes a text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE upper(sex)
-- refused: line 1, column 83: a condition is VARCHAR; accepted: a condition such as sex = 'F', which is true or false

-- title: a condition that is a text in HAVING
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex HAVING sex
-- refused: line 1, column 107: sex is VARCHAR; accepted: a condition such as sex = 'text'

-- title: a condition in a subquery that is a text
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT sex AS s FROM visits) WHERE s
-- refused: line 1, column 106: sex is VARCHAR; accepted: a condition such as sex = 'F'

-- title: a value that the domain does not have
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE age > 5 AND sex = 'f'
-- refused: line 1, column 101: 'f' is not in the domain of sex; accepted: 'F', 'M'

-- title: a value of a list that the domain does not have
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE code NOT IN (1, 9)
-- refused: line 1, column 99: 9 is not in the domain of code; accepted: 0, 1, 2, 3, 4, 5

-- title: a value of FILTER that the domain does not have
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FILTER (WHERE ward <> 'W1') AS n FROM visits
-- refused: line 1, column 87: 'W1' is not in the domain of ward; accepted: 'w1', 'w0', 'w2', 'w3', 'w4', 'w5', ..

-- title: a text without quotes
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE sex = Female
-- refused: line 1, column 89: there is no column 'Female'; accepted: sex, age, ward, patient_id, charge, score, note, urgent, day, at, grade, Straße, odd "name, code; or the text 'Female' in single quotes

-- title: the policy of a table that nearly exists
DROP PRIVACY POLICY ON visit
-- refused: line 1, column 24: visit has no privacy policy; accepted: visits (did you mean that?), or a table that has one, or IF EXISTS
