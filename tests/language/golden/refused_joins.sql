-- title: a cross join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits CROSS JOIN wards
-- refused: line 1, column 77: a cross join is refused; accepted: INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of a private table with a public table ON equal keys

-- title: a comma
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits, wards
-- refused: line 1, column 76: a cross join is refused; accepted: INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of a private table with a public table ON equal keys

-- title: a comma with a condition in WHERE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits, wards WHERE ward = name
-- refused: line 1, column 76: a cross join is refused; accepted: INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of a private table with a public table ON equal keys

-- title: a join without ON
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards
-- refused: line 1, column 77: a cross join is refused; accepted: INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of a private table with a public table ON equal keys

-- title: a join ON true
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON true
-- refused: line 1, column 91: this condition of a join or of EXISTS is refused; accepted: private.key = public.key, joined by AND; other conditions: FROM private JOIN public ON .. = .. WHERE ..

-- title: a join by an inequality
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON ward < name
-- refused: line 1, column 91: this condition of a join or of EXISTS is refused; accepted: private.key = public.key, joined by AND; other conditions: FROM private JOIN public ON .. = .. WHERE ..

-- title: a join by OR
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON ward = name OR sex = name
-- refused: line 1, column 91: this condition of a join or of EXISTS is refused; accepted: private.key = public.key, joined by AND; other conditions: FROM private JOIN public ON .. = .. WHERE ..

-- title: a join of private columns alone
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON ward = sex
-- refused: line 1, column 91: this condition of a join or of EXISTS is refused; accepted: private.key = public.key, joined by AND; other conditions: FROM private JOIN public ON .. = .. WHERE ..

-- title: a join of public columns alone
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON name = region
-- refused: line 1, column 91: this condition of a join or of EXISTS is refused; accepted: private.key = public.key, joined by AND; other conditions: FROM private JOIN public ON .. = .. WHERE ..

-- title: a join with an expression on the public side
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON ward = lower(name)
-- refused: line 1, column 91: this condition of a join or of EXISTS is refused; accepted: private.key = public.key, joined by AND; other conditions: FROM private JOIN public ON .. = .. WHERE ..

-- title: NATURAL JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits NATURAL JOIN offers
-- refused: line 1, column 77: NATURAL JOIN is refused; accepted: INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of a private table with a public table ON equal keys

-- title: ASOF JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits ASOF JOIN wards ON ward >= name
-- refused: line 1, column 77: ASOF JOIN is refused; accepted: INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of a private table with a public table ON equal keys

-- title: POSITIONAL JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits POSITIONAL JOIN wards
-- refused: line 1, column 77: POSITIONAL JOIN is refused; accepted: INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of a private table with a public table ON equal keys

-- title: a join of two private tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN patients ON patient_id = id
-- refused: line 1, column 82: visits protects single rows: a second reference to private rows is refused; accepted: one private table with public tables, or policies with PRIVACY UNIT column

-- title: a self join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits AS a JOIN visits AS b ON a.patient_id = b.patient_id
-- refused: line 1, column 87: visits protects single rows: a second reference to private rows is refused; accepted: one private table with public tables, or policies with PRIVACY UNIT column

-- title: a join with a table that is neither
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN secrets ON note = word
-- refused: line 1, column 82: the table 'secrets' has no privacy policy, so nothing is answered from it; accepted: a table with a policy (CREATE PRIVACY POLICY ON ..), or DECLARE PUBLIC TABLE if it is public

-- title: a join with an unknown table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN nowhere ON note = word
-- refused: line 1, column 82: there is no table 'nowhere'; accepted: a table with a policy, or a declared public one

-- title: a join with a view over a private table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN visit_view ON visits.note = visit_view.note
-- refused: line 1, column 82: the view 'visit_view' has no privacy policy, so nothing is answered from it; accepted: a table with a policy (CREATE PRIVACY POLICY ON ..), or DECLARE PUBLIC TABLE if it is public

-- title: a join with a subquery of private rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN (SELECT note FROM visits) AS n ON visits.note = n.note
-- refused: line 1, column 82: visits protects single rows: a second reference to private rows is refused; accepted: one private table with public tables, or policies with PRIVACY UNIT column

-- title: a join with a table function
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN range(10) AS r(i) ON age = i
-- refused: line 1, column 82: a table function is refused; accepted: a table with a policy

-- title: a join with a sample of a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards TABLESAMPLE 10% ON ward = name
-- refused: line 1, column 82: this cannot follow a public table; accepted: an alias

-- title: a join with renamed public columns
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards AS w(a, b) ON ward = a
-- refused: line 1, column 82: this cannot follow a public table; accepted: an alias

-- title: a join with a column that has a COLLATION
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN folded ON note = label
-- refused: line 1, column 77: a COLLATION makes keys equal that are different texts; accepted: a join of tables without COLLATE

-- title: a key of a public table without rows
-- before: sql CREATE TABLE vacant (spot VARCHAR, label VARCHAR)
-- before: DECLARE PUBLIC TABLE vacant
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) upper(label) AS u, count(*) FROM visits JOIN vacant ON note = spot GROUP BY u
-- refused: line 1, column 62: the public table of 'label' is empty; accepted: rows in it, or a LEFT JOIN

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
