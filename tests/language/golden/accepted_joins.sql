-- title: RIGHT JOIN keeps the groups of the public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) name, count(*) FROM visits RIGHT JOIN wards ON ward = name GROUP BY name
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- keys: name = "p1"."name" [w0, w1, w2]
-- sets: (name)
-- counts: *
-- bound: 1
-- columns: name VARCHAR, count_star() BIGINT

-- title: RIGHT OUTER JOIN of the distinct keys of a public table, USING
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100, group_selection_strategy = PUBLIC_GROUPS) ward, count(*) FROM visits RIGHT OUTER JOIN (SELECT DISTINCT ward FROM offers) USING (ward) GROUP BY ward
-- source: "memory"."main"."visits" AS "r0" JOIN (SELECT DISTINCT "ward" AS "ward" FROM "memory"."main"."offers") AS "p1" ON "r0"."ward" = "p1"."ward"
-- keys: ward = "p1"."ward" [w0, w1, w2]
-- sets: (ward)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, count_star() BIGINT

-- title: LEFT JOIN that keeps the groups of the public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) name, sex, count(*) FROM wards LEFT JOIN visits ON ward = name GROUP BY name, sex
-- source: "memory"."main"."visits" AS "r0" JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- keys: name = "p1"."name" [w0, w1, w2]; sex = "r0"."sex" [F, M]
-- sets: (name, sex)
-- counts: *
-- bound: 1
-- columns: name VARCHAR, sex VARCHAR, count_star() BIGINT

-- title: FULL JOIN with a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) name, count(*) FROM visits FULL JOIN wards ON ward = name GROUP BY name
-- source: "memory"."main"."visits" AS "r0" LEFT JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- keys: name = "p1"."name" [w0, w1, w2, None]
-- sets: (name)
-- counts: *
-- bound: 1
-- columns: name VARCHAR, count_star() BIGINT

-- title: RIGHT JOIN that keeps private rows
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) region, count(*) FROM wards RIGHT JOIN visits ON ward = name GROUP BY region
-- source: "memory"."main"."visits" AS "r0" LEFT JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- keys: region = "p1"."region" [north, south, None]
-- sets: (region)
-- counts: *
-- bound: 1
-- columns: region VARCHAR, count_star() BIGINT

-- title: SEMI JOIN with a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits SEMI JOIN offers ON visits.ward = offers.ward GROUP BY sex
-- source: "memory"."main"."visits" AS "r0" SEMI JOIN "memory"."main"."offers" AS "p1" ON "r0"."ward" = "p1"."ward"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: ANTI JOIN with a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits ANTI JOIN regions ON ward = region GROUP BY sex
-- source: "memory"."main"."visits" AS "r0" ANTI JOIN "memory"."main"."regions" AS "p1" ON "r0"."ward" = "p1"."region"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: a join with columns of a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) w.region, count(*) FROM visits JOIN (SELECT region, name AS n FROM wards) AS w ON ward = n GROUP BY w.region
-- source: "memory"."main"."visits" AS "r0" JOIN (SELECT "region" AS "region", "name" AS "n" FROM "memory"."main"."wards") AS "p1" ON "r0"."ward" = "p1"."n"
-- keys: region = "p1"."region" [north, south, None]
-- sets: (region)
-- counts: *
-- bound: 1
-- columns: region VARCHAR, count_star() BIGINT

-- title: a join with a CTE over a public table
WITH w(a, b) AS (SELECT * FROM offers) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) b, count(*) FROM visits JOIN w ON ward = a GROUP BY b
-- source: "memory"."main"."visits" AS "r0" JOIN (SELECT "ward" AS "a", "offer" AS "b" FROM "memory"."main"."offers") AS "p1" ON "r0"."ward" = "p1"."a"
-- keys: b = "p1"."b" [offer 0, offer 1, offer 2]
-- sets: (b)
-- counts: *
-- bound: 3
-- columns: b VARCHAR, count_star() BIGINT

-- title: distinct columns of a public table that multiply
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) o.offer, count(*) FROM visits JOIN (SELECT DISTINCT ward, offer FROM offers) AS o USING (ward) GROUP BY o.offer
-- source: "memory"."main"."visits" AS "r0" JOIN (SELECT DISTINCT "ward" AS "ward", "offer" AS "offer" FROM "memory"."main"."offers") AS "p1" ON "r0"."ward" = "p1"."ward"
-- keys: offer = "p1"."offer" [offer 0, offer 1, offer 2]
-- sets: (offer)
-- counts: *
-- bound: 3
-- columns: offer VARCHAR, count_star() BIGINT

-- title: two private tables on the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, kind, count(*) FROM people JOIN calls ON people.person = calls.person GROUP BY sex, kind
-- source: "memory"."main"."people" AS "r0" JOIN "memory"."main"."calls" AS "r1" ON "r0"."person" = "r1"."person"
-- keys: sex = "r0"."sex" [F, M]; kind = "r1"."kind" [in, out]
-- sets: (sex, kind)
-- counts: *
-- bound: 4 of "r0"."person"
-- columns: sex VARCHAR, kind VARCHAR, count_star() BIGINT

-- title: USING the unit, other conditions beside it
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, kind, count(*) FROM people JOIN calls USING (person) WHERE person > 100 GROUP BY ALL
-- source: "memory"."main"."people" AS "r0" JOIN "memory"."main"."calls" AS "r1" ON "r0"."person" = "r1"."person"
-- filters: ("r0"."person" > 100)
-- keys: sex = "r0"."sex" [F, M]; kind = "r1"."kind" [in, out]
-- sets: (sex, kind)
-- counts: *
-- bound: 4 of "r0"."person"
-- columns: sex VARCHAR, kind VARCHAR, count_star() BIGINT

-- title: a condition of ON that compares both sides
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) kind, count(*) FROM people AS p JOIN calls AS c ON p.person = c.person AND c.call_id % 4 <> p.person % 3 GROUP BY kind
-- source: "memory"."main"."people" AS "r0" JOIN "memory"."main"."calls" AS "r1" ON "r0"."person" = "r1"."person" AND try("r1"."call_id" % 4 <> "r0"."person" % 3)
-- keys: kind = "r1"."kind" [in, out]
-- sets: (kind)
-- counts: *
-- bound: 4 of "r0"."person"
-- columns: kind VARCHAR, count_star() BIGINT

-- title: along a reference
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) kind, word, count(*) FROM calls JOIN words ON call_id = call GROUP BY kind, word
-- source: "memory"."main"."calls" AS "r0" JOIN "memory"."main"."words" AS "r1" ON "r0"."call_id" = "r1"."call"
-- keys: kind = "r0"."kind" [in, out]; word = "r1"."word" [x, y, z]
-- sets: (kind, word)
-- counts: *
-- bound: 8 of "r0"."person"
-- columns: kind VARCHAR, word VARCHAR, count_star() BIGINT

-- title: a table that finds its unit through a parent
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) word, count(*) FROM words GROUP BY word
-- source: "memory"."main"."words" AS "r0" JOIN "memory"."main"."calls" AS "r0_1" ON "r0"."call" = "r0_1"."call_id"
-- keys: word = "r0"."word" [x, y, z]
-- sets: (word)
-- counts: *
-- bound: 8 of "r0_1"."person"
-- columns: word VARCHAR, count_star() BIGINT
-- plain: SELECT word, count(*) FROM words JOIN calls ON call_id = call GROUP BY word

-- title: a chain of three tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100, max_rows_contributed = 16) sex, word, count(*) FROM people AS p JOIN calls AS c ON p.person = c.person JOIN words ON call_id = call WHERE kind = 'in' GROUP BY sex, word
-- source: "memory"."main"."people" AS "r0" JOIN "memory"."main"."calls" AS "r1" ON "r0"."person" = "r1"."person" JOIN "memory"."main"."words" AS "r2" ON "r1"."call_id" = "r2"."call"
-- filters: ("r1"."kind" = 'in')
-- keys: sex = "r0"."sex" [F, M]; word = "r2"."word" [x, y, z]
-- sets: (sex, word)
-- counts: *
-- bound: 16 of "r0"."person"
-- columns: sex VARCHAR, word VARCHAR, count_star() BIGINT

-- title: the child first
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100, max_rows_contributed = 16, privacy_unit_column = person) sex, word, count(*) FROM words JOIN calls ON call = call_id JOIN people USING (person) GROUP BY sex, word
-- source: "memory"."main"."words" AS "r0" JOIN "memory"."main"."calls" AS "r1" ON "r0"."call" = "r1"."call_id" JOIN "memory"."main"."people" AS "r2" ON "r1"."person" = "r2"."person"
-- keys: sex = "r2"."sex" [F, M]; word = "r0"."word" [x, y, z]
-- sets: (sex, word)
-- counts: *
-- bound: 16 of "r1"."person"
-- columns: sex VARCHAR, word VARCHAR, count_star() BIGINT

-- title: LEFT JOIN of private tables, the other side filtered
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) kind, count(word) FROM calls LEFT JOIN (SELECT * FROM words WHERE word <> 'z') AS w ON call_id = call GROUP BY kind
-- source: "memory"."main"."calls" AS "r0" LEFT JOIN "memory"."main"."words" AS "r1" ON "r0"."call_id" = "r1"."call" AND ("r1"."word" <> 'z')
-- keys: kind = "r0"."kind" [in, out]
-- sets: (kind)
-- counts: (NOT ("r1"."word") IS NULL)
-- bound: 8 of "r0"."person"
-- columns: kind VARCHAR, count(word) BIGINT

-- title: RIGHT JOIN of private tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) kind, count(*) FROM (SELECT * FROM words WHERE word = 'x') AS w RIGHT JOIN calls ON call_id = call GROUP BY kind
-- source: "memory"."main"."words" AS "r0" RIGHT JOIN "memory"."main"."calls" AS "r1" ON "r1"."call_id" = "r0"."call" AND ("r0"."word" = 'x')
-- keys: kind = "r1"."kind" [in, out]
-- sets: (kind)
-- counts: *
-- bound: 8 of "r1"."person"
-- columns: kind VARCHAR, count_star() BIGINT

-- title: FULL JOIN of private tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) kind, count(sex), count(*) FROM people FULL JOIN calls ON people.person = calls.person GROUP BY kind
-- source: "memory"."main"."people" AS "r0" FULL JOIN "memory"."main"."calls" AS "r1" ON "r0"."person" = "r1"."person"
-- keys: kind = "r1"."kind" [in, out]
-- sets: (kind)
-- counts: (NOT ("r0"."sex") IS NULL); *
-- bound: 4 of coalesce("r0"."person", "r1"."person")
-- columns: kind VARCHAR, count(sex) BIGINT, count_star() BIGINT

-- title: SEMI JOIN of private tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) kind, count(*) FROM calls SEMI JOIN (SELECT call FROM words WHERE word = 'x') AS w ON call = call_id GROUP BY kind
-- source: "memory"."main"."calls" AS "r0" SEMI JOIN "memory"."main"."words" AS "r1" ON "r1"."call" = "r0"."call_id" AND ("r1"."word" = 'x')
-- keys: kind = "r0"."kind" [in, out]
-- sets: (kind)
-- counts: *
-- bound: 4 of "r0"."person"
-- columns: kind VARCHAR, count_star() BIGINT

-- title: ANTI JOIN of private tables
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) kind, count(*) FROM calls ANTI JOIN words ON call = call_id AND word = 'y' GROUP BY kind
-- source: "memory"."main"."calls" AS "r0" ANTI JOIN "memory"."main"."words" AS "r1" ON "r1"."call" = "r0"."call_id" AND ("r1"."word" = 'y')
-- keys: kind = "r0"."kind" [in, out]
-- sets: (kind)
-- counts: *
-- bound: 4 of "r0"."person"
-- columns: kind VARCHAR, count_star() BIGINT

-- title: a private table joined with itself on the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) a.kind, b.kind AS other, count(*) FROM calls AS a JOIN calls AS b ON a.person = b.person GROUP BY a.kind, b.kind
-- source: "memory"."main"."calls" AS "r0" JOIN "memory"."main"."calls" AS "r1" ON "r0"."person" = "r1"."person"
-- keys: kind = "r0"."kind" [in, out]; kind_2 = "r1"."kind" [in, out]
-- sets: (kind, kind_2)
-- counts: *
-- bound: 4 of "r0"."person"
-- columns: kind VARCHAR, other VARCHAR, count_star() BIGINT

-- title: children of one parent
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100, max_rows_contributed = 8) a.word, count(*) FROM words AS a JOIN words AS b ON a.call = b.call GROUP BY a.word
-- source: "memory"."main"."words" AS "r0" JOIN "memory"."main"."words" AS "r1" ON "r0"."call" = "r1"."call" JOIN "memory"."main"."calls" AS "r0_1" ON "r0"."call" = "r0_1"."call_id"
-- keys: word = "r0"."word" [x, y, z]
-- sets: (word)
-- counts: *
-- bound: 8 of "r0_1"."person"
-- columns: word VARCHAR, count_star() BIGINT
-- plain: SELECT a.word, count(*) FROM words AS a JOIN words AS b ON a.call = b.call JOIN calls ON a.call = call_id GROUP BY a.word

-- title: private tables and public ones
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) region, kind, count(*) FROM people JOIN calls USING (person) LEFT JOIN wards ON people.ward = wards.name GROUP BY region, kind
-- source: "memory"."main"."people" AS "r0" JOIN "memory"."main"."calls" AS "r1" ON "r0"."person" = "r1"."person" LEFT JOIN "memory"."main"."wards" AS "p1" ON "r0"."ward" = "p1"."name"
-- keys: region = "p1"."region" [north, south, None]; kind = "r1"."kind" [in, out]
-- sets: (region, kind)
-- counts: *
-- bound: 4 of "r0"."person"
-- columns: region VARCHAR, kind VARCHAR, count_star() BIGINT

-- title: a subquery with its own join on the right
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) kind, region, count(*) FROM calls JOIN (SELECT person AS who, region FROM people JOIN wards ON ward = name WHERE sex = 'F') AS f ON who = calls.person GROUP BY kind, region
-- source: "memory"."main"."calls" AS "r0" JOIN ("memory"."main"."people" AS "r1" JOIN "memory"."main"."wards" AS "p1" ON "r1"."ward" = "p1"."name") ON "r1"."person" = "r0"."person"
-- filters: ("r1"."sex" = 'F')
-- keys: kind = "r0"."kind" [in, out]; region = "p1"."region" [north, south, None]
-- sets: (kind, region)
-- counts: *
-- bound: 4 of "r0"."person"
-- columns: kind VARCHAR, region VARCHAR, count_star() BIGINT

-- title: CTEs of private tables joined
WITH f AS (SELECT * FROM people WHERE sex = 'F'), c AS (SELECT person AS who, kind FROM calls) SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) kind, count(*) FROM f JOIN c ON f.person = c.who GROUP BY kind
-- source: "memory"."main"."people" AS "r0" JOIN "memory"."main"."calls" AS "r1" ON "r0"."person" = "r1"."person"
-- filters: ("r0"."sex" = 'F')
-- keys: kind = "r1"."kind" [in, out]
-- sets: (kind)
-- counts: *
-- bound: 4 of "r0"."person"
-- columns: kind VARCHAR, count_star() BIGINT

-- title: UNION ALL of tables with one unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) label, count(*) FROM (SELECT sex AS label FROM people UNION ALL SELECT kind FROM calls) GROUP BY label
-- source: (SELECT "r0"."sex" AS "label", "r0"."person" AS dpduck_unit FROM "memory"."main"."people" AS "r0" UNION ALL SELECT "r0"."kind" AS "label", "r0"."person" AS dpduck_unit FROM "memory"."main"."calls" AS "r0") AS "r0"
-- keys: label = "r0"."label" [F, M, in, out]
-- sets: (label)
-- counts: *
-- bound: 6 of "r0"."dpduck_unit"
-- columns: label VARCHAR, count_star() BIGINT

-- title: UNION ALL with a text that tells the tables apart
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) origin, count(*) FROM (SELECT 'people' AS origin, sex FROM people WHERE sex = 'F' UNION ALL SELECT 'calls', kind FROM calls UNION ALL SELECT 'words', word FROM words JOIN calls ON call = call_id) GROUP BY origin
-- source: (SELECT 'people' AS "origin", "r0"."sex" AS "sex", "r0"."person" AS dpduck_unit FROM "memory"."main"."people" AS "r0" WHERE (("r0"."sex" = 'F')) UNION ALL SELECT 'calls' AS "origin", "r0"."kind" AS "sex", "r0"."person" AS dpduck_unit FROM "memory"."main"."calls" AS "r0" UNION ALL SELECT 'words' AS "origin", "r0"."word" AS "sex", "r1"."person" AS dpduck_unit FROM "memory"."main"."words" AS "r0" JOIN "memory"."main"."calls" AS "r1" ON "r0"."call" = "r1"."call_id") AS "r0"
-- keys: origin = "r0"."origin" [people, calls, words]
-- sets: (origin)
-- counts: *
-- bound: 14 of "r0"."dpduck_unit"
-- columns: origin VARCHAR, count_star() BIGINT

-- title: UNION ALL in a CTE, joined on the unit
WITH u AS (SELECT person AS who, kind FROM calls UNION ALL SELECT person, kind FROM calls WHERE kind = 'in') SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, kind, count(*) FROM u JOIN people ON who = person WHERE ward = 'w0' GROUP BY sex, kind
-- source: (SELECT "r0"."person" AS "who", "r0"."kind" AS "kind", "r0"."person" AS dpduck_unit FROM "memory"."main"."calls" AS "r0" UNION ALL SELECT "r0"."person" AS "who", "r0"."kind" AS "kind", "r0"."person" AS dpduck_unit FROM "memory"."main"."calls" AS "r0" WHERE (("r0"."kind" = 'in'))) AS "r0" JOIN "memory"."main"."people" AS "r1" ON "r0"."who" = "r1"."person"
-- filters: ("r1"."ward" = 'w0')
-- keys: sex = "r1"."sex" [F, M]; kind = "r0"."kind" [in, out]
-- sets: (sex, kind)
-- counts: *
-- bound: 8 of "r0"."dpduck_unit"
-- columns: sex VARCHAR, kind VARCHAR, count_star() BIGINT

-- title: how many rows each unit has
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) n, count(*) FROM (SELECT people.person, count(call_id) AS n FROM people LEFT JOIN calls ON people.person = calls.person AND kind = 'in' GROUP BY people.person) AS c GROUP BY n HAVING count(*) > 0.5
-- source: (SELECT "r0"."person" AS "person", count(CASE WHEN (NOT ("r1"."call_id") IS NULL) THEN 1 END) AS "n", "r0"."person" AS dpduck_unit FROM "memory"."main"."people" AS "r0" LEFT JOIN "memory"."main"."calls" AS "r1" ON "r0"."person" = "r1"."person" AND ("r1"."kind" = 'in') WHERE "r0"."person" IS NOT NULL GROUP BY "r0"."person") AS "r0"
-- keys: n = "r0"."n" [0, 1, 2, 3, 4]
-- sets: (n)
-- counts: *
-- bound: 1 of "r0"."dpduck_unit"
-- columns: n BIGINT, count_star() BIGINT

-- title: counts of each unit, joined on the unit
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, n, count(*) FROM people JOIN (SELECT person AS who, count(*) AS n FROM calls GROUP BY person) AS c ON who = person WHERE n < 3 GROUP BY sex, n HAVING count(*) > 0.5
-- source: "memory"."main"."people" AS "r0" JOIN (SELECT "r0"."person" AS "who", count(*) AS "n", "r0"."person" AS dpduck_unit FROM "memory"."main"."calls" AS "r0" WHERE "r0"."person" IS NOT NULL GROUP BY "r0"."person") AS "r1" ON "r1"."who" = "r0"."person"
-- filters: ("r1"."n" < 3)
-- keys: sex = "r0"."sex" [F, M]; n = "r1"."n" [0, 1, 2, 3, 4]
-- sets: (sex, n)
-- counts: *
-- bound: 2 of "r0"."person"
-- columns: sex VARCHAR, n BIGINT, count_star() BIGINT

-- title: IN over a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE ward IN (SELECT name FROM wards) GROUP BY sex
-- source: "memory"."main"."visits" AS "r0" SEMI JOIN (SELECT "name" AS "dpduck_value" FROM "memory"."main"."wards") AS "p1" ON "r0"."ward" = "p1"."dpduck_value"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: IN over public tables beside other conditions
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE (lower(ward) IN (SELECT DISTINCT ward FROM offers)) AND age > 10 AND ward IN (SELECT name FROM wards) GROUP BY sex
-- source: "memory"."main"."visits" AS "r0" SEMI JOIN (SELECT DISTINCT "ward" AS "dpduck_value" FROM "memory"."main"."offers") AS "p1" ON try(try_cast(lower("r0"."ward") AS VARCHAR)) = "p1"."dpduck_value" SEMI JOIN (SELECT "name" AS "dpduck_value" FROM "memory"."main"."wards") AS "p2" ON "r0"."ward" = "p2"."dpduck_value"
-- filters: ("r0"."age" > 10)
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: EXISTS in a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE EXISTS (SELECT 1 FROM offers WHERE offers.ward = visits.ward) GROUP BY sex
-- source: "memory"."main"."visits" AS "r0" SEMI JOIN "memory"."main"."offers" AS "p1" ON "r0"."ward" = "p1"."ward"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: NOT EXISTS in a public table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE age > 10 AND NOT EXISTS (SELECT * FROM regions AS r WHERE r.region = ward) GROUP BY sex
-- source: "memory"."main"."visits" AS "r0" ANTI JOIN "memory"."main"."regions" AS "p1" ON "r0"."ward" = "p1"."region"
-- filters: ("r0"."age" > 10)
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT
