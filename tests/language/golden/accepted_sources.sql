-- title: a subquery that filters
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM (SELECT * FROM visits WHERE age > 5) GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."age" > 5)
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: a subquery that projects
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) s, a2, count(*) FROM (SELECT sex AS s, age // 20 AS a2, urgent FROM visits) AS v WHERE urgent GROUP BY s, a2
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."urgent")
-- keys: sex = "r0"."sex" [F, M]; key = "r0"."age" // 20 [0, 1]
-- sets: (sex, key)
-- counts: *
-- bound: 1
-- columns: s VARCHAR, a2 INTEGER, count_star() BIGINT

-- title: subqueries in subqueries
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) w, count(*) FROM (SELECT w FROM (SELECT upper(ward) AS w, age FROM visits WHERE sex = 'F') AS a WHERE age < 25) AS b GROUP BY w
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."age" < 25) AND ("r0"."sex" = 'F')
-- keys: key = upper("r0"."ward") [W0, W1, W2, None]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: w VARCHAR, count_star() BIGINT

-- title: columns renamed after a subquery
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) a, b, count(*) FROM (SELECT sex, age FROM visits) AS v(a, b) GROUP BY a, b
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; age = "r0"."age" [0, 10, 20, 30]
-- sets: (sex, age)
-- counts: *
-- bound: 1
-- columns: a VARCHAR, b INTEGER, count_star() BIGINT

-- title: columns renamed after a table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) a, b, count(*) FROM visits AS v(a, b) GROUP BY a, b
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; age = "r0"."age" [0, 10, 20, 30]
-- sets: (sex, age)
-- counts: *
-- bound: 1
-- columns: a VARCHAR, b INTEGER, count_star() BIGINT

-- title: FROM first
FROM visits SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: a CTE
WITH v AS (SELECT sex, age FROM visits WHERE urgent) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM v GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."urgent")
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: a CTE with names
WITH v(a, b) AS (SELECT sex, age FROM visits WHERE urgent) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) a, count(*) FROM v GROUP BY a
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."urgent")
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: a VARCHAR, count_star() BIGINT

-- title: a chain of CTEs
WITH v AS (SELECT * FROM visits WHERE urgent), w AS (SELECT sex, age + 10 AS later FROM v WHERE age < 25) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, later, count(*) FROM w GROUP BY ALL HAVING count(*) > 0
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."age" < 25) AND ("r0"."urgent")
-- keys: sex = "r0"."sex" [F, M]; key = "r0"."age" + 10 [10, 20, 30, 40]
-- sets: (sex, key)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, later INTEGER, count_star() BIGINT

-- title: a CTE that hides the table that it reads
WITH visits AS (SELECT * FROM visits WHERE urgent) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."urgent")
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: a CTE that reads the table that a later CTE hides
WITH v AS (SELECT * FROM visits WHERE urgent), visits AS (SELECT * FROM v WHERE age > 5) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."age" > 5) AND ("r0"."urgent")
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: a CTE inside a subquery
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM (WITH v AS (SELECT sex FROM visits WHERE urgent) SELECT * FROM v) GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."urgent")
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: a column of a subquery in WHERE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM (SELECT sex, length(note) + age AS size FROM visits) WHERE size > 20 GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: try((length("r0"."note") + "r0"."age") > 20)
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: a join
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) region, count(*) FROM visits JOIN wards ON ward = name GROUP BY region
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- keys: region = "p1"."region" [north, south, None]
-- sets: (region)
-- counts: *
-- bound: 1
-- columns: region VARCHAR, count_star() BIGINT

-- title: a join by qualified names, sides exchanged
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) w.name, v.sex, count(*) FROM visits AS v INNER JOIN wards AS w ON w.name = v.ward GROUP BY w.name, v.sex
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- keys: name = "p1"."name" [w0, w1, w2]; sex = "r0"."sex" [F, M]
-- sets: (name, sex)
-- counts: *
-- bound: 1
-- columns: name VARCHAR, sex VARCHAR, count_star() BIGINT

-- title: the public table first
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) region, count(*) FROM wards JOIN visits ON ward = name GROUP BY region
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- keys: region = "p1"."region" [north, south, None]
-- sets: (region)
-- counts: *
-- bound: 1
-- columns: region VARCHAR, count_star() BIGINT

-- title: LEFT JOIN
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) region, count(*), count(name) AS m FROM visits LEFT JOIN wards ON ward = name GROUP BY region
-- source: "memory"."main"."visits" AS "r0" LEFT JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- keys: region = "p1"."region" [north, south, None]
-- sets: (region)
-- counts: *; (NOT ("p1"."name") IS NULL)
-- bound: 1
-- columns: region VARCHAR, count_star() BIGINT, m BIGINT

-- title: a join by an expression
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) beds, count(*) FROM visits JOIN wards ON code + 1 = beds GROUP BY beds
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON try(try_cast("r0"."code" + 1 AS INTEGER)) = "p1"."beds"
-- keys: beds = "p1"."beds" [1, 2, 3]
-- sets: (beds)
-- counts: *
-- bound: 1
-- columns: beds INTEGER, count_star() BIGINT

-- title: a join by a text made of columns
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) region, count(*) FROM visits JOIN wards ON 'w' || (code // 2) = name GROUP BY region
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON try(try_cast('w' || ("r0"."code" // 2) AS VARCHAR)) = "p1"."name"
-- keys: region = "p1"."region" [north, south, None]
-- sets: (region)
-- counts: *
-- bound: 1
-- columns: region VARCHAR, count_star() BIGINT

-- title: a join by two keys
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) region, count(*) FROM visits JOIN wards ON ward = name AND code = beds GROUP BY region
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name" AND try(try_cast("r0"."code" AS INTEGER)) = "p1"."beds"
-- keys: region = "p1"."region" [north, south, None]
-- sets: (region)
-- counts: *
-- bound: 1
-- columns: region VARCHAR, count_star() BIGINT

-- title: a join of keys of different types
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) name, count(*) FROM visits JOIN wards ON CAST(code AS VARCHAR) = beds GROUP BY name
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON try(try_cast(CAST("r0"."code" AS TEXT) AS INTEGER)) = "p1"."beds"
-- keys: name = "p1"."name" [w0, w1, w2]
-- sets: (name)
-- counts: *
-- bound: 1
-- columns: name VARCHAR, count_star() BIGINT
-- plain: SELECT name, count(*) AS "count_star()" FROM visits JOIN wards ON code = beds GROUP BY name

-- title: USING
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, offer, count(*) FROM visits JOIN offers USING (ward) GROUP BY ward, offer HAVING count(*) > 0
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."offers" AS "p1" ON "r0"."ward" = "p1"."ward"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]; offer = "p1"."offer" [offer 0, offer 1, offer 2]
-- sets: (ward, offer)
-- counts: *
-- bound: 3
-- columns: ward VARCHAR, offer VARCHAR, count_star() BIGINT

-- title: a join that multiplies rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) count(*) FROM visits JOIN offers ON visits.ward = offers.ward
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."offers" AS "p1" ON "r0"."ward" = "p1"."ward"
-- sets: ()
-- counts: *
-- bound: 3
-- columns: count_star() BIGINT

-- title: two public tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) letter, count(*) FROM visits JOIN wards ON ward = name JOIN regions ON wards.region = regions.region GROUP BY letter
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name" JOIN "memory"."main"."regions" AS "p2" ON "p1"."region" = "p2"."region"
-- keys: letter = "p2"."letter" [N, S]
-- sets: (letter)
-- counts: *
-- bound: 1
-- columns: letter VARCHAR, count_star() BIGINT

-- title: two public tables with USING
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) region, letter, count(*) FROM visits JOIN wards ON ward = name JOIN regions USING (region) GROUP BY ALL HAVING count(*) > 0
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name" JOIN "memory"."main"."regions" AS "p2" ON "p1"."region" = "p2"."region"
-- keys: region = "p1"."region" [north, south, None]; letter = "p2"."letter" [N, S]
-- sets: (region, letter)
-- counts: *
-- bound: 1
-- columns: region VARCHAR, letter VARCHAR, count_star() BIGINT

-- title: two LEFT JOINs
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) letter, count(*) FROM visits LEFT JOIN wards ON ward = name LEFT JOIN regions ON wards.region = regions.region GROUP BY letter
-- source: "memory"."main"."visits" AS "r0" LEFT JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name" LEFT JOIN "memory"."main"."regions" AS "p2" ON "p1"."region" = "p2"."region"
-- keys: letter = "p2"."letter" [N, S, None]
-- sets: (letter)
-- counts: *
-- bound: 1
-- columns: letter VARCHAR, count_star() BIGINT

-- title: WHERE over public columns
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits JOIN wards ON ward = name WHERE beds >= 2 OR region = 'north' GROUP BY sex
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- filters: ("p1"."beds" >= 2 OR "p1"."region" = 'north')
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: an expression over private and public columns
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex || coalesce(region, '-') AS x, count(*) FROM visits JOIN wards ON ward = name GROUP BY x
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- keys: key = "r0"."sex" || coalesce("p1"."region", '-') [F-, Fnorth, Fsouth, M-, Mnorth, Msouth]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: x VARCHAR, count_star() BIGINT

-- title: a join inside a subquery
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) region, letter, count(*) FROM (SELECT region AS r, sex FROM visits JOIN wards ON ward = name WHERE age < 25) AS v JOIN regions ON r = region GROUP BY ALL HAVING count(*) > 0
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name" JOIN "memory"."main"."regions" AS "p2" ON "p1"."region" = "p2"."region"
-- filters: ("r0"."age" < 25)
-- keys: region = "p2"."region" [north, south]; letter = "p2"."letter" [N, S]
-- sets: (region, letter)
-- counts: *
-- bound: 1
-- columns: region VARCHAR, letter VARCHAR, count_star() BIGINT

-- title: a join of a CTE
WITH v AS (SELECT ward AS w, sex FROM visits WHERE urgent) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) region, sex, count(*) FROM v JOIN wards ON w = name GROUP BY ALL
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- filters: ("r0"."urgent")
-- keys: region = "p1"."region" [north, south, None]; sex = "r0"."sex" [F, M]
-- sets: (region, sex)
-- counts: *
-- bound: 1
-- columns: region VARCHAR, sex VARCHAR, count_star() BIGINT

-- title: a join of a privacy unit of a column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) region, count(*) FROM people JOIN wards ON ward = name GROUP BY region
-- source: "memory"."main"."people" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- keys: region = "p1"."region" [north, south, None]
-- sets: (region)
-- counts: *
-- bound: 2 of "r0"."person"
-- columns: region VARCHAR, count_star() BIGINT
