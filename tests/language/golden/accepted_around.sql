-- title: a query around
SELECT sex, n * 2 AS double FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) AS n FROM visits GROUP BY sex) ORDER BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, double BIGINT

-- title: an aggregate around
SELECT sum(n), max(n), count(*) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, ward, count(*) AS n FROM visits GROUP BY ALL)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (sex, ward)
-- counts: *
-- bound: 1
-- columns: sum(n) HUGEINT, max(n) BIGINT, count_star() BIGINT

-- title: a query around that groups
SELECT sex, sum(n) AS total FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, ward, count(*) AS n FROM visits GROUP BY ALL) AS a GROUP BY sex HAVING sum(n) > 10
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (sex, ward)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, total HUGEINT

-- title: a query around with CUBE
SELECT sex, ward, sum(n) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, ward, count(*) AS n FROM visits GROUP BY ALL) GROUP BY CUBE (sex, ward)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (sex, ward)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, ward VARCHAR, sum(n) HUGEINT

-- title: a CTE that holds the answer
WITH a AS (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) AS n FROM visits GROUP BY sex) SELECT sex, n / sum(n) OVER () AS share FROM a ORDER BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, share DOUBLE

-- title: the answer read twice
WITH a AS (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) AS n FROM visits GROUP BY sex) SELECT x.sex, x.n - y.n AS difference FROM a AS x JOIN a AS y ON x.sex <> y.sex ORDER BY ALL
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, difference BIGINT

-- title: a join with a public table around
SELECT region, sum(n) FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, count(*) AS n FROM visits GROUP BY ward) AS a LEFT JOIN wards ON ward = name GROUP BY region
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (ward)
-- counts: *
-- bound: 1
-- columns: region VARCHAR, sum(n) HUGEINT

-- title: a subquery on public rows around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, count(*) AS n FROM visits GROUP BY ward) WHERE ward IN (SELECT name FROM wards WHERE beds > 1) ORDER BY ward
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (ward)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, n BIGINT

-- title: EXISTS on public rows around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, count(*) AS n FROM visits GROUP BY ward) AS a WHERE EXISTS (SELECT 1 FROM wards WHERE name = a.ward AND beds > 1)
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (ward)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, n BIGINT

-- title: UNION with public rows
SELECT ward, n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, count(*) AS n FROM visits GROUP BY ward) UNION ALL SELECT name, beds FROM wards
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (ward)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, n BIGINT

-- title: private and answered CTEs in one WITH
WITH v AS (SELECT * FROM visits WHERE urgent), a AS (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) AS n FROM v GROUP BY sex), b AS (SELECT max(n) AS most FROM a) SELECT sex, n, most FROM a, b ORDER BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."urgent")
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, n BIGINT, most BIGINT

-- title: a CTE around hides a public table
WITH wards AS (SELECT 'w0' AS name, 9 AS beds) SELECT ward, n, beds FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, count(*) AS n FROM visits GROUP BY ward) JOIN wards ON ward = name
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (ward)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, n BIGINT, beds INTEGER

-- title: a scalar answer
SELECT 1 + (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) count(*) FROM visits WHERE urgent) AS n
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."urgent")
-- sets: ()
-- counts: *
-- bound: 1
-- columns: n BIGINT

-- title: an answer beside public rows
SELECT name, (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) count(*) FROM visits WHERE urgent) AS n FROM wards ORDER BY name
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."urgent")
-- sets: ()
-- counts: *
-- bound: 1
-- columns: name VARCHAR, n BIGINT

-- title: parentheses
(SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits GROUP BY sex ORDER BY sex)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: LIMIT around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) age, count(*) AS n FROM visits GROUP BY age ORDER BY age) ORDER BY age DESC LIMIT 2
-- source: "memory"."main"."visits" AS "r0"
-- keys: age = "r0"."age" [0, 10, 20, 30]
-- sets: (age)
-- counts: *
-- bound: 1
-- columns: age INTEGER, n BIGINT

-- title: DISTINCT around
SELECT DISTINCT n > 10 AS many FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) AS n FROM visits GROUP BY sex)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: many BOOLEAN

-- title: * around
SELECT * FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) AS n FROM visits GROUP BY sex)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, n BIGINT

-- title: VALUES around
SELECT a.sex, label, n FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) AS n FROM visits GROUP BY sex) AS a JOIN (VALUES ('F', 'women'), ('M', 'men')) AS t(sex, label) ON a.sex = t.sex ORDER BY 1
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, label VARCHAR, n BIGINT
