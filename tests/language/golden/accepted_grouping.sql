-- title: a plain list
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, ward, count(*) FROM visits GROUP BY sex, ward
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (sex, ward)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, ward VARCHAR, count_star() BIGINT

-- title: no GROUP BY
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) count(*) FROM visits
-- source: "memory"."main"."visits" AS "r0"
-- sets: ()
-- counts: *
-- bound: 1
-- columns: count_star() BIGINT

-- title: GROUP BY ALL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, grade, count(*) AS n FROM visits GROUP BY ALL
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; grade = "r0"."grade" [low, mid, high]
-- sets: (sex, grade)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, grade VARCHAR, n BIGINT

-- title: GROUP BY ALL without a key
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) count(*) AS n, count(note) AS m FROM visits GROUP BY ALL
-- source: "memory"."main"."visits" AS "r0"
-- sets: ()
-- counts: *; (NOT ("r0"."note") IS NULL)
-- bound: 1
-- columns: n BIGINT, m BIGINT

-- title: ordinals
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, urgent, count(*) FROM visits GROUP BY 1, 2
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]; urgent = "r0"."urgent" [false, true]
-- sets: (ward, urgent)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, urgent BOOLEAN, count_star() BIGINT

-- title: an ordinal of an expression
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) upper(ward), count(*) FROM visits GROUP BY 1
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = upper("r0"."ward") [W0, W1, W2, None]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: upper(ward) VARCHAR, count_star() BIGINT

-- title: an alias of an expression
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) upper(ward) AS loud, count(*) FROM visits GROUP BY loud
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = upper("r0"."ward") [W0, W1, W2, None]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: loud VARCHAR, count_star() BIGINT

-- title: an alias that hides a column: the column is what is grouped
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) upper(ward) AS ward, count(*) FROM visits GROUP BY ward
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (ward)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, count_star() BIGINT

-- title: an expression of a key
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) upper(ward) || '!' AS x, count(*) FROM visits GROUP BY upper(ward)
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = upper("r0"."ward") [W0, W1, W2, None]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: x VARCHAR, count_star() BIGINT

-- title: expressions of several keys
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) age + 1 AS x, sex || '-' || ward AS y, count(*) FROM visits GROUP BY age, sex, ward
-- source: "memory"."main"."visits" AS "r0"
-- keys: age = "r0"."age" [0, 10, 20, 30]; sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (age, sex, ward)
-- counts: *
-- bound: 1
-- columns: x INTEGER, y VARCHAR, count_star() BIGINT

-- title: an expression over two columns
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) CASE WHEN urgent THEN sex ELSE ward END AS who, count(*) FROM visits GROUP BY who
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = CASE WHEN "r0"."urgent" THEN "r0"."sex" ELSE "r0"."ward" END [F, M, w0, w1, w2, None]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: who VARCHAR, count_star() BIGINT

-- title: integer division
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) age // 20 AS score, count(*) FROM visits GROUP BY age // 20
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = "r0"."age" // 20 [0, 1]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: score INTEGER, count_star() BIGINT

-- title: CASE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) CASE WHEN age < 20 THEN 'young' ELSE 'old' END AS generation, count(*) FROM visits GROUP BY generation
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = CASE WHEN "r0"."age" < 20 THEN 'young' ELSE 'old' END [old, young]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: generation VARCHAR, count_star() BIGINT

-- title: CASE in its simple form
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) CASE grade WHEN 'low' THEN 1 WHEN 'mid' THEN 2 ELSE 3 END AS g, count(*) FROM visits GROUP BY g
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = CASE "r0"."grade" WHEN 'low' THEN 1 WHEN 'mid' THEN 2 ELSE 3 END [1, 2, 3]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: g INTEGER, count_star() BIGINT

-- title: date_trunc over a range of dates
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) date_trunc('quarter', day) AS quarter, count(*) FROM visits GROUP BY quarter
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = date_trunc('QUARTER', "r0"."day") [2024-01-01 00:00:00]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: quarter TIMESTAMP, count_star() BIGINT

-- title: extract over a range of dates
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) extract(month FROM day) AS m, count(*) FROM visits GROUP BY m
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = EXTRACT(MONTH FROM "r0"."day") [1, 2, 3]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: m BIGINT, count_star() BIGINT

-- title: strftime over a range of dates
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) strftime(day, '%Y-%m') AS m, count(*) FROM visits GROUP BY m
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = strftime("r0"."day", '%Y-%m') [2024-01, 2024-02, 2024-03]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: m VARCHAR, count_star() BIGINT

-- title: a range of dates
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) day, count(*) FROM visits GROUP BY day
-- source: "memory"."main"."visits" AS "r0"
-- keys: day = "r0"."day" [2024-01-01, 2024-02-01, 2024-03-01]
-- sets: (day)
-- counts: *
-- bound: 1
-- columns: day DATE, count_star() BIGINT

-- title: BOOLEAN and ENUM
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) urgent, grade, count(*) FROM visits GROUP BY urgent, grade
-- source: "memory"."main"."visits" AS "r0"
-- keys: urgent = "r0"."urgent" [false, true]; grade = "r0"."grade" [low, mid, high]
-- sets: (urgent, grade)
-- counts: *
-- bound: 1
-- columns: urgent BOOLEAN, grade VARCHAR, count_star() BIGINT

-- title: a condition as a key
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward = 'w0' AS here, count(*) FROM visits GROUP BY here
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = "r0"."ward" = 'w0' [false, true, None]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: here BOOLEAN, count_star() BIGINT

-- title: IS NULL as a key
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward IS NULL AS nowhere, count(*) FROM visits GROUP BY nowhere
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = "r0"."ward" IS NULL [false, true]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: nowhere BOOLEAN, count_star() BIGINT

-- title: coalesce over a domain WITH NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) coalesce(ward, 'none') AS w, count(*) FROM visits GROUP BY w
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = coalesce("r0"."ward", 'none') [none, w0, w1, w2]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: w VARCHAR, count_star() BIGINT

-- title: arithmetic that is negative zero
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) CASE WHEN age < 10 THEN 0.0::DOUBLE WHEN age < 20 THEN -(0.0::DOUBLE) ELSE 1 END AS z, count(*) FROM visits GROUP BY z
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = CASE WHEN "r0"."age" < 10 THEN CAST(0.0 AS DOUBLE) WHEN "r0"."age" < 20 THEN -(CAST(0.0 AS DOUBLE)) ELSE 1 END [0.0, 1.0]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: z DOUBLE, count_star() BIGINT

-- title: a key that is not selected
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) count(*) AS n FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: n BIGINT

-- title: a key twice
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, sex AS again, count(*) FROM visits GROUP BY sex, sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, again VARCHAR, count_star() BIGINT

-- title: a composite key
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, ward, count(*) FROM visits GROUP BY (sex, ward)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (sex, ward)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, ward VARCHAR, count_star() BIGINT

-- title: CUBE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, ward, grouping(sex) AS g, grouping(ward) AS h, count(*) FROM visits GROUP BY CUBE (sex, ward)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (sex, ward) (sex) (ward) ()
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, ward VARCHAR, g NUMBER, h NUMBER, count_star() NUMBER

-- title: ROLLUP
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, ward, grade, count(*) FROM visits GROUP BY ROLLUP (sex, ward, grade)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]; grade = "r0"."grade" [low, mid, high]
-- sets: (sex, ward, grade) (sex, ward) (sex) ()
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, ward VARCHAR, grade VARCHAR, count_star() NUMBER

-- title: ROLLUP of composites
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, ward, grade, grouping(sex, ward, grade) AS g, count(*) FROM visits GROUP BY ROLLUP ((sex, ward), grade)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]; grade = "r0"."grade" [low, mid, high]
-- sets: (sex, ward, grade) (sex, ward) ()
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, ward VARCHAR, grade VARCHAR, g NUMBER, count_star() NUMBER

-- title: GROUPING SETS
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, ward, count(*) FROM visits GROUP BY GROUPING SETS ((sex, ward), sex, ())
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (sex, ward) (sex) ()
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, ward VARCHAR, count_star() NUMBER

-- title: GROUPING SETS with one twice
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits GROUP BY GROUPING SETS ((sex), (sex), ())
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex) ()
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() NUMBER

-- title: GROUPING SETS of CUBE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, urgent, grade, count(*) FROM visits GROUP BY GROUPING SETS (CUBE (sex, urgent), grade)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; urgent = "r0"."urgent" [false, true]; grade = "r0"."grade" [low, mid, high]
-- sets: (sex, urgent) (sex) (urgent) () (grade)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, urgent BOOLEAN, grade VARCHAR, count_star() NUMBER

-- title: a list beside CUBE
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, urgent, grade, count(*) FROM visits GROUP BY sex, CUBE (urgent, grade)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; urgent = "r0"."urgent" [false, true]; grade = "r0"."grade" [low, mid, high]
-- sets: (sex, urgent, grade) (sex, urgent) (sex, grade) (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, urgent BOOLEAN, grade VARCHAR, count_star() NUMBER

-- title: CUBE of an expression
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) upper(sex) AS s, age // 20 AS a, count(*) FROM visits GROUP BY CUBE (s, a)
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = upper("r0"."sex") [F, M]; key_2 = "r0"."age" // 20 [0, 1]
-- sets: (key, key_2) (key) (key_2) ()
-- counts: *
-- bound: 1
-- columns: s VARCHAR, a INTEGER, count_star() NUMBER

-- title: GROUPING of several columns in another order
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) grouping(ward, sex) AS g, grouping_id(sex, ward) AS h, count(*) FROM visits GROUP BY CUBE (sex, ward)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (sex, ward) (sex) (ward) ()
-- counts: *
-- bound: 1
-- columns: g NUMBER, h NUMBER, count_star() NUMBER

-- title: MARGINALS: all pairs
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, urgent, grade, count(*) FROM visits GROUP BY MARGINALS (2, sex, urgent, grade)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; urgent = "r0"."urgent" [false, true]; grade = "r0"."grade" [low, mid, high]
-- sets: (sex, urgent) (sex, grade) (urgent, grade)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, urgent BOOLEAN, grade VARCHAR, count_star() NUMBER
-- plain: SELECT sex, urgent, grade, count(*) FROM visits GROUP BY GROUPING SETS ((sex, urgent), (sex, grade), (urgent, grade))

-- title: MARGINALS of order zero
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) count(*) FROM visits GROUP BY MARGINALS (0, sex)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: ()
-- counts: *
-- bound: 1
-- columns: count_star() BIGINT
-- plain: SELECT count(*) FROM visits

-- title: names in other capitals
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) SEX, Visits.Ward, COUNT(*) FROM VISITS GROUP BY Sex, ward
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (sex, ward)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, ward VARCHAR, count_star() BIGINT

-- title: names of three parts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) v.sex, count(*) FROM memory.main.visits AS v GROUP BY v.sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: names of two parts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) visits.sex, count(*) FROM main.visits GROUP BY visits.sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: quoted and unicode names
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) "größe" AS "Größe ""quoted""", "select", count(*) AS "wie viele?" FROM "Übung ""1" GROUP BY "größe", "select"
-- source: "memory"."main"."Übung ""1" AS "r0"
-- keys: größe = "r0"."größe" [F, M]; select = "r0"."select" [0, 1, 2]
-- sets: (größe, select)
-- counts: *
-- bound: 1
-- columns: Größe "quoted" VARCHAR, select BIGINT, wie viele? BIGINT

-- title: columns named like those of the released table
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) grouping_id, answer_1, "released", "value", dpduck_code_0, count(*) AS stderr_1 FROM odd GROUP BY ALL HAVING count(*) > 0
-- source: "memory"."main"."odd" AS "r0"
-- keys: grouping_id_2 = "r0"."grouping_id" [0, 1]; answer_1_2 = "r0"."answer_1" [0, 1, 2]; released = "r0"."released" [0, 1]; value = "r0"."value" [0, 1, 2]; dpduck_code_0 = "r0"."dpduck_code_0" [0, 1]
-- sets: (grouping_id_2, answer_1_2, released, value, dpduck_code_0)
-- counts: *
-- bound: 1
-- columns: grouping_id BIGINT, answer_1 BIGINT, released BIGINT, value BIGINT, dpduck_code_0 BIGINT, stderr_1 BIGINT

-- title: an expression over columns of those names
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) dpduck_code_0 + "value" AS x, grouping(grouping_id) AS g, grouping_id, count(*) FROM odd GROUP BY ALL HAVING count(*) > 0
-- source: "memory"."main"."odd" AS "r0"
-- keys: key = "r0"."dpduck_code_0" + "r0"."value" [0, 1, 2, 3]; grouping_id_2 = "r0"."grouping_id" [0, 1]
-- sets: (key, grouping_id_2)
-- counts: *
-- bound: 1
-- columns: x BIGINT, g BIGINT, grouping_id BIGINT, count_star() BIGINT
-- plain: SELECT dpduck_code_0 + "value" AS x, 0 AS g, grouping_id, count(*) FROM odd GROUP BY ALL

-- title: WITH NULL, WITH OTHER
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) word, count(*) FROM loose GROUP BY word
-- source: "memory"."main"."loose" AS "r0"
-- keys: word = "r0"."word" [v0, v1, v2, None, else]
-- sets: (word)
-- counts: *
-- bound: 1
-- columns: word VARCHAR, count_star() BIGINT
-- plain: SELECT CASE WHEN word IN ('v0', 'v1', 'v2') OR word IS NULL THEN word ELSE 'else' END AS word, count(*) AS "count_star()" FROM loose GROUP BY 1

-- title: WITH EDGES
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) age, count(*) FROM loose GROUP BY age
-- source: "memory"."main"."loose" AS "r0"
-- keys: age = "r0"."age" [0, 10, 20]
-- sets: (age)
-- counts: *
-- bound: 1
-- columns: age INTEGER, count_star() BIGINT
-- plain: SELECT least(greatest(age // 10 * 10, 0), 20) AS age, count(*) AS "count_star()" FROM loose GROUP BY 1

-- title: a range drops what is outside, NaN too
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) score, count(*) FROM loose GROUP BY score
-- source: "memory"."main"."loose" AS "r0"
-- keys: score = "r0"."score" [0.0, 5.0, 10.0, 15.0]
-- sets: (score)
-- counts: *
-- bound: 1
-- columns: score DOUBLE, count_star() BIGINT
-- plain: SELECT floor(score / 5) * 5 AS score, count(*) AS "count_star()" FROM loose WHERE score >= 0 AND score < 20 GROUP BY 1

-- title: a privacy unit of a column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, ward, count(*) FROM people GROUP BY sex, ward
-- source: "memory"."main"."people" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2]
-- sets: (sex, ward)
-- counts: *
-- bound: 2 of "r0"."person"
-- columns: sex VARCHAR, ward VARCHAR, count_star() BIGINT
