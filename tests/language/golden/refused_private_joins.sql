-- title: private tables with different units
-- before: sql CREATE TABLE staff (id INTEGER, ward VARCHAR)
-- before: CREATE PRIVACY POLICY ON staff (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 1))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients JOIN staff ON patients.id = staff.id
-- refused: line 1, column 84: patients and staff do not share a privacy unit; accepted: policies whose PRIVACY UNIT is one column, or REFERENCES it

-- title: private tables joined on something else than the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients AS a JOIN patients AS b ON a.ward = b.ward
-- refused: line 1, column 106: joins between tables containing private data must join on the privacy unit column in each table; accepted: ON a.id = b.id, joined by AND with other conditions

-- title: the unit of one side with another column of the other
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients AS a JOIN patients AS b ON a.id = b.age
-- refused: line 1, column 106: joins between tables containing private data must join on the privacy unit column in each table; accepted: ON a.id = b.id, joined by AND with other conditions

-- title: the unit inside an expression
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients AS a JOIN patients AS b ON a.id + 0 = b.id
-- refused: line 1, column 106: joins between tables containing private data must join on the privacy unit column in each table; accepted: ON a.id = b.id, joined by AND with other conditions

-- title: equal units or something else
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients AS a JOIN patients AS b ON a.id = b.id OR a.age = b.age
-- refused: line 1, column 106: joins between tables containing private data must join on the privacy unit column in each table; accepted: ON a.id = b.id, joined by AND with other conditions

-- title: equal units on one side alone
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients AS a JOIN patients AS b ON a.id = a.id
-- refused: line 1, column 106: joins between tables containing private data must join on the privacy unit column in each table; accepted: ON a.id = b.id, joined by AND with other conditions

-- title: IS NOT DISTINCT FROM joins units that are NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients AS a JOIN patients AS b ON a.id IS NOT DISTINCT FROM b.id
-- refused: line 1, column 106: joins between tables containing private data must join on the privacy unit column in each table; accepted: ON a.id = b.id, joined by AND with other conditions

-- title: a cross join of private tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients AS a, patients AS b WHERE a.id = b.id
-- refused: line 1, column 83: a cross join is refused; accepted: INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of tables with one privacy unit ON equal units or references

-- title: a NATURAL JOIN of private tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients AS a NATURAL JOIN patients AS b
-- refused: line 1, column 84: NATURAL JOIN is refused; accepted: INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of tables with one privacy unit ON equal units or references

-- title: units of types that are compared by a cast
-- before: sql CREATE TABLE stays (patient VARCHAR)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients JOIN stays ON patients.id = stays.patient
-- refused: line 1, column 93: units of the types INTEGER and VARCHAR are not compared; accepted: one type in both tables, not FLOAT or DOUBLE

-- title: a key that DuckDB no longer keeps unique
-- before: sql CREATE TABLE stays (id INTEGER, patient INTEGER)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM stays AS a JOIN stays AS b ON a.id = b.id
-- refused: line 1, column 100: joins between tables containing private data must join on the privacy unit column in each table; accepted: ON a.patient = b.patient, joined by AND with other conditions

-- title: a child joined with a table that is not its parent
-- before: sql CREATE TABLE stays (id INTEGER PRIMARY KEY, patient INTEGER)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2)
-- before: sql CREATE TABLE doses (stay INTEGER)
-- before: CREATE PRIVACY POLICY ON doses (PRIVACY UNIT stay REFERENCES stays.id MAX ROWS 5)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients JOIN doses ON stay = patients.id
-- refused: line 1, column 93: joins between tables containing private data must join on the privacy unit column in each table; accepted: ON columns that hold the privacy unit or refer to it, joined by AND with other conditions

-- title: a FULL JOIN of filtered subqueries
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id FROM patients WHERE age > 3) AS a FULL JOIN patients AS b ON a.id = b.id
-- refused: line 1, column 115: a FULL JOIN of filtered subqueries is refused; accepted: WHERE after the join, or a LEFT JOIN

-- title: a FULL JOIN of a table that finds its unit through a parent
-- before: sql CREATE TABLE stays (id INTEGER PRIMARY KEY, patient INTEGER)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2)
-- before: sql CREATE TABLE doses (stay INTEGER)
-- before: CREATE PRIVACY POLICY ON doses (PRIVACY UNIT stay REFERENCES stays.id MAX ROWS 5)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM doses FULL JOIN stays ON stay = stays.id
-- refused: line 1, column 76: a FULL JOIN of tables without a column of the unit is refused; accepted: LEFT JOIN or JOIN

-- title: columns of a table behind SEMI JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(b.age) FROM patients AS a SEMI JOIN patients AS b ON a.id = b.id
-- refused: line 1, column 62: there is no table 'b' in FROM; accepted: id, sex, ward, age

-- title: more rows of a unit than the tables can have
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_rows_contributed = 5) count(*) FROM patients AS a JOIN patients AS b ON a.id = b.id
-- refused: line 1, column 8: max_rows_contributed is above the policy's MAX ROWS; accepted: at most 4

-- title: a unit that is no table's
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, privacy_unit_column = ward) count(*) FROM patients AS a JOIN patients AS b ON a.id = b.id
-- refused: line 1, column 8: privacy_unit_column differs from the policy's unit; accepted: id

-- title: the price limit of either table
-- before: sql CREATE TABLE stays (patient INTEGER)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2, MAX EPSILON 0.5)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients JOIN stays ON patients.id = stays.patient
-- refused: line 1, column 8: the price of one statement is limited; accepted: epsilon of at most 0.5

-- title: UNION over private rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT sex FROM patients UNION SELECT sex FROM patients)
-- refused: line 1, column 71: UNION over private rows is refused; accepted: UNION ALL of SELECTs over tables with one privacy unit

-- title: UNION ALL BY NAME over private rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT sex FROM patients UNION ALL BY NAME SELECT ward FROM patients)
-- refused: line 1, column 71: UNION BY NAME over private rows is refused; accepted: UNION ALL of SELECTs over tables with one privacy unit

-- title: UNION ALL of tables with different units
-- before: sql CREATE TABLE staff (id INTEGER, ward VARCHAR)
-- before: CREATE PRIVACY POLICY ON staff (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 1))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT ward FROM patients UNION ALL SELECT ward FROM staff)
-- refused: line 1, column 107: patients and staff do not share a privacy unit; accepted: policies whose PRIVACY UNIT is one column, or REFERENCES it

-- title: UNION ALL of private and public rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT ward FROM patients UNION ALL SELECT name FROM wards)
-- refused: line 1, column 124: 'wards' is public: there is nothing to protect; accepted: plain SQL without WITH DIFFERENTIAL_PRIVACY

-- title: UNION ALL of different types
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT ward FROM patients UNION ALL SELECT age FROM patients)
-- refused: line 1, column 107: the columns of UNION ALL differ in number or type; accepted: the same types in every branch

-- title: UNION ALL of different lengths
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT ward FROM patients UNION ALL SELECT ward, age FROM patients)
-- refused: line 1, column 107: the columns of UNION ALL differ in number or type; accepted: the same types in every branch

-- title: expressions in UNION ALL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT age + 1 AS a FROM patients UNION ALL SELECT age FROM patients)
-- refused: line 1, column 78: an expression inside UNION ALL is refused; accepted: columns and texts; expressions around UNION ALL

-- title: one name twice in UNION ALL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT age AS a, age AS A FROM patients UNION ALL SELECT age, age FROM patients)
-- refused: line 1, column 78: two columns of UNION ALL have one name; accepted: a name for each column

-- title: LIMIT behind UNION ALL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT age FROM patients UNION ALL SELECT age FROM patients LIMIT 1)
-- refused: line 1, column 71: UNION over private rows is refused; accepted: UNION ALL of SELECTs over tables with one privacy unit

-- title: a key of UNION ALL without a domain in one branch
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) s, count(*) FROM (SELECT sex AS s FROM patients UNION ALL SELECT CAST(NULL AS VARCHAR) FROM patients) GROUP BY s
-- refused: line 1, column 114: an expression inside UNION ALL is refused; accepted: columns and texts; expressions around UNION ALL

-- title: a row for each value of another column than the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) n, count(*) FROM (SELECT ward, count(*) AS n FROM patients GROUP BY ward) GROUP BY n
-- refused: line 1, column 124: GROUP BY over private rows inside a subquery is refused; accepted: GROUP BY the privacy unit's column alone, with it and count, min, max, sum, first, bool_or selected

-- title: an average for each unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, avg(age) AS n FROM patients GROUP BY id) WHERE n > 3
-- refused: line 1, column 82: this is refused in a subquery with a row for each privacy unit; accepted: count, min, max, sum, first(x ORDER BY y), last(x ORDER BY y), arg_min, arg_max, any_value, bool_or, bool_and

-- title: a column beside the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, ward, count(*) AS n FROM patients GROUP BY id) WHERE n > 3
-- refused: line 1, column 82: a column that is not the privacy unit's; accepted: GROUP BY the privacy unit's column alone, with it and count, min, max, sum, first, bool_or selected

-- title: HAVING for each unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM (SELECT id, count(*) AS n FROM patients GROUP BY id HAVING count(*) > 1)
-- refused: line 1, column 122: HAVING inside a subquery is refused; accepted: HAVING of SELECT WITH DIFFERENTIAL_PRIVACY
