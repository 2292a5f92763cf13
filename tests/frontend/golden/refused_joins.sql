-- title: a cross join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits CROSS JOIN wards
-- refused: line 1, column 77: a cross join is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: a comma
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits, wards
-- refused: line 1, column 76: a cross join is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: a comma with a condition in WHERE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits, wards WHERE ward = name
-- refused: line 1, column 76: a cross join is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: a join without ON
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards
-- refused: line 1, column 77: a cross join is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: a join ON true
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON true
-- refused: line 1, column 91: this join condition is refused; accepted: private.key = public.key, joined by AND; other conditions go to WHERE

-- title: a join by an inequality
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON ward < name
-- refused: line 1, column 91: this join condition is refused; accepted: private.key = public.key, joined by AND; other conditions go to WHERE

-- title: a join by OR
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON ward = name OR sex = name
-- refused: line 1, column 91: this join condition is refused; accepted: private.key = public.key, joined by AND; other conditions go to WHERE

-- title: a join of private columns alone
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON ward = sex
-- refused: line 1, column 91: this join condition is refused; accepted: private.key = public.key, joined by AND; other conditions go to WHERE

-- title: a join of public columns alone
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON name = region
-- refused: line 1, column 91: this join condition is refused; accepted: private.key = public.key, joined by AND; other conditions go to WHERE

-- title: a join with an expression on the public side
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON ward = lower(name)
-- refused: line 1, column 91: this join condition is refused; accepted: private.key = public.key, joined by AND; other conditions go to WHERE

-- title: RIGHT JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits RIGHT JOIN wards ON ward = name
-- refused: line 1, column 77: RIGHT JOIN is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: FULL JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits FULL JOIN wards ON ward = name
-- refused: line 1, column 77: FULL JOIN is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: FULL OUTER JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits FULL OUTER JOIN wards ON ward = name
-- refused: line 1, column 77: FULL OUTER JOIN is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: LEFT JOIN that keeps public rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM wards LEFT JOIN visits ON ward = name
-- refused: line 1, column 76: a LEFT JOIN that keeps public rows without private ones is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: NATURAL JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits NATURAL JOIN offers
-- refused: line 1, column 77: NATURAL JOIN is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: ASOF JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits ASOF JOIN wards ON ward >= name
-- refused: line 1, column 77: ASOF JOIN is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: POSITIONAL JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits POSITIONAL JOIN wards
-- refused: line 1, column 77: POSITIONAL JOIN is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: SEMI JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits SEMI JOIN wards ON ward = name
-- refused: line 1, column 77: SEMI JOIN is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: ANTI JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits ANTI JOIN wards ON ward = name
-- refused: line 1, column 77: ANTI JOIN is refused; accepted: INNER or LEFT JOIN of the private table with a public table ON equal keys

-- title: a join of two private tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN patients ON patient_id = id
-- refused: line 1, column 82: a second reference to private rows; accepted: one private table, joined with declared public tables by their names

-- title: a self join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits AS a JOIN visits AS b ON a.patient_id = b.patient_id
-- refused: line 1, column 87: a second reference to private rows; accepted: one private table, joined with declared public tables by their names

-- title: a join with a table that is neither
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN secrets ON note = word
-- refused: line 1, column 82: 'secrets' is not declared public; accepted: a table after DECLARE PUBLIC TABLE

-- title: a join with an unknown table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN nowhere ON note = word
-- refused: line 1, column 82: there is no table 'nowhere'; accepted: one private table, joined with declared public tables by their names

-- title: a join with a view over a private table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN visit_view ON visits.note = visit_view.note
-- refused: line 1, column 82: 'visit_view' is not declared public; accepted: a table after DECLARE PUBLIC TABLE

-- title: a join with a subquery of public rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN (SELECT name FROM wards) AS w ON ward = w.name
-- refused: line 1, column 82: a subquery on the public side of a join is refused; accepted: one private table, joined with declared public tables by their names

-- title: a join with a CTE of public rows
WITH w AS (SELECT name FROM wards) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN w ON ward = w.name
-- refused: line 1, column 117: a subquery on the public side of a join is refused; accepted: one private table, joined with declared public tables by their names

-- title: a join with a subquery of private rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN (SELECT note FROM visits) AS n ON visits.note = n.note
-- refused: line 1, column 82: a second reference to private rows; accepted: one private table, joined with declared public tables by their names

-- title: a join with a table function
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN range(10) AS r(i) ON age = i
-- refused: line 1, column 82: a table function is refused; accepted: one private table, joined with declared public tables by their names

-- title: a join with a sample of a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards TABLESAMPLE 10% ON ward = name
-- refused: line 1, column 82: this cannot follow a public table; accepted: an alias

-- title: a join with renamed public columns
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards AS w(a, b) ON ward = a
-- refused: line 1, column 82: this cannot follow a public table; accepted: an alias

-- title: a join with a column that has a COLLATION
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN folded ON note = label
-- refused: line 1, column 77: a COLLATION makes keys equal that are different texts; accepted: a join of tables without COLLATE

-- title: a join by a function that is not on the list
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON md5(ward) = name
-- refused: line 1, column 91: md5 is not on the list of deterministic row functions; accepted: arithmetic, comparison, CASE, CAST, coalesce, text and date functions such as upper, substring, date_trunc

-- title: USING a column that is not there
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards USING (ward)
-- refused: line 1, column 95: there is no column 'ward'; accepted: name, region, code

-- title: a join in parentheses
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (visits JOIN wards ON ward = name)
-- refused: line 1, column 71: a join in parentheses is refused; accepted: joins without parentheses

-- title: a condition of a join that does not convert
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON ward || CAST('x' AS DATE) = name
-- refused: line 1, column 91: DuckDB does not accept this: ..; accepted: DuckDB's SQL
