-- title: count of a column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(note) FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: (NOT ("r0"."note") IS NULL)
-- bound: 1
-- columns: sex VARCHAR, count(note) BIGINT

-- title: count of a constant
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(1) FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count(1) BIGINT

-- title: count without an argument
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count() FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: count of an expression
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(nullif(note, 'note 1')) AS n FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: try(NOT (nullif("r0"."note", 'note 1')) IS NULL)
-- bound: 1
-- columns: sex VARCHAR, n BIGINT

-- title: count FILTER
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FILTER (WHERE age >= 20) AS n FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: ("r0"."age" >= 20)
-- bound: 1
-- columns: sex VARCHAR, n BIGINT

-- title: count of a column FILTER
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(score) FILTER (WHERE urgent AND note IS NOT NULL) AS n FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: ((NOT ("r0"."score") IS NULL)) AND (("r0"."urgent") AND (NOT "r0"."note" IS NULL))
-- bound: 1
-- columns: sex VARCHAR, n BIGINT

-- title: count_if
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count_if(note LIKE '%3') AS n FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: try("r0"."note" LIKE '%3')
-- bound: 1
-- columns: sex VARCHAR, n BIGINT

-- title: several counts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) AS n, count(note) AS m, count(*) FILTER (WHERE urgent) AS k FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *; (NOT ("r0"."note") IS NULL); ("r0"."urgent")
-- bound: 1
-- columns: sex VARCHAR, n BIGINT, m BIGINT, k BIGINT

-- title: one count twice
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) AS n, count(*) AS m, 2 * count(*) AS double FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, n BIGINT, m BIGINT, double BIGINT

-- title: expressions over counts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, round(100.0 * count(note) / count(*), 1) AS share FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: (NOT ("r0"."note") IS NULL); *
-- bound: 1
-- columns: sex VARCHAR, share DOUBLE

-- title: CASE over a count
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, CASE WHEN count(*) > 500 THEN 'many' ELSE 'few' END AS size FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, size VARCHAR

-- title: a cast of a count
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, CAST(count(*) AS VARCHAR) || ' visits' AS said FROM visits GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, said VARCHAR

-- title: HAVING
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, grade, count(*) AS n FROM visits GROUP BY ALL HAVING count(*) > 100
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]; grade = "r0"."grade" [low, mid, high]
-- sets: (ward, grade)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, grade VARCHAR, n BIGINT

-- title: HAVING by alias
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, age, count(*) AS n FROM visits GROUP BY ALL HAVING n > 100 AND ward IS NOT NULL
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]; age = "r0"."age" [0, 10, 20, 30]
-- sets: (ward, age)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, age INTEGER, n BIGINT

-- title: HAVING by another aggregate
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, age FROM visits GROUP BY ALL HAVING count(note) > 60 AND count(*) > 100
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]; age = "r0"."age" [0, 10, 20, 30]
-- sets: (ward, age)
-- counts: (NOT ("r0"."note") IS NULL); *
-- bound: 1
-- columns: ward VARCHAR, age INTEGER

-- title: HAVING by an alias that is also a column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) upper(ward) AS ward, count(*) AS n FROM visits GROUP BY ALL HAVING ward = 'W1'
-- source: "memory"."main"."visits" AS "r0"
-- keys: key = upper("r0"."ward") [W0, W1, W2, None]
-- sets: (key)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, n BIGINT

-- title: QUALIFY
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, ward, count(*) AS n FROM visits GROUP BY sex, ward QUALIFY row_number() OVER (PARTITION BY sex ORDER BY count(*) DESC, ward) = 1
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (sex, ward)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, ward VARCHAR, n BIGINT

-- title: a window over answers
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) age, sex, count(*) AS n, sum(count(*)) OVER (PARTITION BY age) AS total, rank() OVER (ORDER BY count(*), age, sex) AS place FROM visits GROUP BY age, sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: age = "r0"."age" [0, 10, 20, 30]; sex = "r0"."sex" [F, M]
-- sets: (age, sex)
-- counts: *
-- bound: 1
-- columns: age INTEGER, sex VARCHAR, n BIGINT, total HUGEINT, place BIGINT

-- title: a window with a frame
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) day, count(*) AS n, sum(count(*)) OVER (ORDER BY day ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS moving FROM visits GROUP BY day
-- source: "memory"."main"."visits" AS "r0"
-- keys: day = "r0"."day" [2024-01-01, 2024-02-01, 2024-03-01]
-- sets: (day)
-- counts: *
-- bound: 1
-- columns: day DATE, n BIGINT, moving HUGEINT

-- title: lag and lead
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) day, count(*) - lag(count(*)) OVER (ORDER BY day) AS change, lead(day, 1) OVER (ORDER BY day) AS next FROM visits GROUP BY day
-- source: "memory"."main"."visits" AS "r0"
-- keys: day = "r0"."day" [2024-01-01, 2024-02-01, 2024-03-01]
-- sets: (day)
-- counts: *
-- bound: 1
-- columns: day DATE, change BIGINT, next DATE

-- title: ORDER BY an aggregate
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) age, sex, count(*) AS n FROM visits GROUP BY ALL ORDER BY count(*) DESC, age, sex
-- source: "memory"."main"."visits" AS "r0"
-- keys: age = "r0"."age" [0, 10, 20, 30]; sex = "r0"."sex" [F, M]
-- sets: (age, sex)
-- counts: *
-- bound: 1
-- columns: age INTEGER, sex VARCHAR, n BIGINT

-- title: ORDER BY an alias
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) age, sex, count(*) AS n FROM visits GROUP BY ALL ORDER BY n DESC, sex DESC, age
-- source: "memory"."main"."visits" AS "r0"
-- keys: age = "r0"."age" [0, 10, 20, 30]; sex = "r0"."sex" [F, M]
-- sets: (age, sex)
-- counts: *
-- bound: 1
-- columns: age INTEGER, sex VARCHAR, n BIGINT

-- title: ORDER BY ordinals with NULLS
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, sex, count(*) FROM visits GROUP BY ALL ORDER BY 1 DESC NULLS FIRST, 2
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]; sex = "r0"."sex" [F, M]
-- sets: (ward, sex)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, sex VARCHAR, count_star() BIGINT

-- title: ORDER BY NULLS LAST
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, count(*) FROM visits GROUP BY ward ORDER BY ward NULLS LAST
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]
-- sets: (ward)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, count_star() BIGINT

-- title: ORDER BY ALL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) ward, sex, count(*) FROM visits GROUP BY ALL ORDER BY ALL
-- source: "memory"."main"."visits" AS "r0"
-- keys: ward = "r0"."ward" [w0, w1, w2, None]; sex = "r0"."sex" [F, M]
-- sets: (ward, sex)
-- counts: *
-- bound: 1
-- columns: ward VARCHAR, sex VARCHAR, count_star() BIGINT

-- title: ORDER BY ALL DESC
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, age, count(*) FROM visits GROUP BY ALL ORDER BY ALL DESC
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; age = "r0"."age" [0, 10, 20, 30]
-- sets: (sex, age)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, age INTEGER, count_star() BIGINT

-- title: ORDER BY an expression that is not selected
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, age FROM visits GROUP BY sex, age HAVING count(*) > 0 ORDER BY age * -1, upper(sex)
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; age = "r0"."age" [0, 10, 20, 30]
-- sets: (sex, age)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, age INTEGER

-- title: ORDER BY an ENUM
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) grade, count(*) FROM visits GROUP BY grade ORDER BY grade
-- source: "memory"."main"."visits" AS "r0"
-- keys: grade = "r0"."grade" [low, mid, high]
-- sets: (grade)
-- counts: *
-- bound: 1
-- columns: grade VARCHAR, count_star() BIGINT

-- title: ORDER BY the position of an ENUM
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, grade, count(*) FROM visits GROUP BY ALL ORDER BY 2 DESC, 1
-- source: "memory"."main"."visits" AS "r0"
-- keys: sex = "r0"."sex" [F, M]; grade = "r0"."grade" [low, mid, high]
-- sets: (sex, grade)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, grade VARCHAR, count_star() BIGINT

-- title: ORDER BY ALL with an ENUM
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) grade, sex, count(*) FROM visits GROUP BY ALL ORDER BY ALL
-- source: "memory"."main"."visits" AS "r0"
-- keys: grade = "r0"."grade" [low, mid, high]; sex = "r0"."sex" [F, M]
-- sets: (grade, sex)
-- counts: *
-- bound: 1
-- columns: grade VARCHAR, sex VARCHAR, count_star() BIGINT

-- title: a window that an ENUM orders
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) grade, row_number() OVER (ORDER BY grade DESC) AS r, count(*) FROM visits GROUP BY grade ORDER BY r
-- source: "memory"."main"."visits" AS "r0"
-- keys: grade = "r0"."grade" [low, mid, high]
-- sets: (grade)
-- counts: *
-- bound: 1
-- columns: grade VARCHAR, r BIGINT, count_star() BIGINT

-- title: LIMIT and OFFSET
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) age, count(*) FROM visits GROUP BY age ORDER BY age LIMIT 2 OFFSET 1
-- source: "memory"."main"."visits" AS "r0"
-- keys: age = "r0"."age" [0, 10, 20, 30]
-- sets: (age)
-- counts: *
-- bound: 1
-- columns: age INTEGER, count_star() BIGINT

-- title: LIMIT 0
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) age, count(*) FROM visits GROUP BY age LIMIT 0
-- source: "memory"."main"."visits" AS "r0"
-- keys: age = "r0"."age" [0, 10, 20, 30]
-- sets: (age)
-- counts: *
-- bound: 1
-- columns: age INTEGER, count_star() BIGINT

-- title: WHERE on any column
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE charge > 100.5 AND note <> 'note 2' AND NOT urgent GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."charge" > 100.5) AND ("r0"."note" <> 'note 2') AND (NOT "r0"."urgent")
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with OR and NOT
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE (ward = 'w1' OR age BETWEEN 10 AND 20) AND NOT (grade = 'low') GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."ward" = 'w1' OR "r0"."age" BETWEEN 10 AND 20) AND try(NOT ("r0"."grade" = 'low'))
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with LIKE, ILIKE, GLOB, SIMILAR TO, regular expressions
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE note LIKE 'note _' AND note ILIKE '%E%' AND note GLOB 'n*' AND note SIMILAR TO 'note [0-4]' AND regexp_matches(note, '[13]$') GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: try("r0"."note" GLOB 'n*') AND try("r0"."note" ILIKE '%E%') AND try("r0"."note" LIKE 'note _') AND try("r0"."note" SIMILAR TO 'note [0-4]') AND try(regexp_matches("r0"."note", '[13]$'))
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with IN and NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE ward IN ('w0', 'w2') OR note IS NULL GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."ward" IN ('w0', 'w2') OR "r0"."note" IS NULL)
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with dates and times
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE day >= DATE '2024-02-01' AND moment < TIMESTAMP '2024-02-20 10:00:00' + INTERVAL 3 DAY AND date_part('hour', moment) < 12 GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."day" >= CAST('2024-02-01' AS DATE)) AND try("r0"."moment" < CAST('2024-02-20 10:00:00' AS TIMESTAMP) + INTERVAL '3' DAY) AND try(date_part('hour', "r0"."moment") < 12)
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with dates as texts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE day = '2024-02-01' AND moment BETWEEN '2024-01-05' AND '2024-03-01' GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."day" = '2024-02-01') AND ("r0"."moment" BETWEEN '2024-01-05' AND '2024-03-01')
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with NaN and NULL
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE score > 50 OR isnan(score) OR score IS NULL GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: try("r0"."score" > 50 OR isnan("r0"."score") OR "r0"."score" IS NULL)
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with functions of texts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE substring(upper(trim(note)), 1, 4) || length(note) = 'NOTE6' AND split_part(note, ' ', 2) > '2' AND reverse(note) LIKE '%eton' AND replace(note, 'note', 'n') <> 'n 3' GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: try(replace("r0"."note", 'note', 'n') <> 'n 3') AND try(reverse("r0"."note") LIKE '%eton') AND try(split_part("r0"."note", ' ', 2) > '2') AND try(substring(upper(trim("r0"."note")), 1, 4) || length("r0"."note") = 'NOTE6')
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with functions of numbers
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE round(charge, 0) % 2 = 0 AND abs(age - 15) < 10 AND floor(sqrt(patient_id)) > 3 AND patient_id & 1 = 0 AND power(age, 2) < 500 AND code ** 2 < 20 GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: try("r0"."patient_id" & 1 = 0) AND try(abs("r0"."age" - 15) < 10) AND try(floor(sqrt("r0"."patient_id")) > 3) AND try(power("r0"."age", 2) < 500) AND try(power("r0"."code", 2) < 20) AND try(round("r0"."charge", 0) % 2 = 0)
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with casts
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE CAST(charge AS INTEGER) > 10 AND TRY_CAST(note AS INTEGER) IS NULL AND day::TIMESTAMP <= moment::DATE::TIMESTAMP + INTERVAL 90 DAY GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: try(CAST("r0"."charge" AS INT) > 10) AND try(CAST("r0"."day" AS TIMESTAMP) <= CAST(CAST("r0"."moment" AS DATE) AS TIMESTAMP) + INTERVAL '90' DAY) AND try(TRY_CAST("r0"."note" AS INT) IS NULL)
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with CASE, coalesce, greatest, nullif
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE CASE WHEN urgent THEN age ELSE patient_id END > 15 AND coalesce(note, ward, 'x') <> 'w1' AND greatest(age, code) > 2 AND nullif(ward, 'w0') IS NOT NULL GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: try(CASE WHEN "r0"."urgent" THEN "r0"."age" ELSE "r0"."patient_id" END > 15) AND try(NOT nullif("r0"."ward", 'w0') IS NULL) AND try(coalesce("r0"."note", "r0"."ward", 'x') <> 'w1') AND try(greatest("r0"."age", "r0"."code") > 2)
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with IS DISTINCT FROM
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE ward IS DISTINCT FROM 'w1' AND note IS NOT DISTINCT FROM NULL GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: ("r0"."ward" IS DISTINCT FROM 'w1') AND try("r0"."note" IS NOT DISTINCT FROM NULL)
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE with a row of columns
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE (sex, age) = ('F', 10) OR (sex, age) IN (('M', 0), ('M', 20)) GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: try(("r0"."sex", "r0"."age") = ('F', 10) OR ("r0"."sex", "r0"."age") IN (('M', 0), ('M', 20)))
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT

-- title: WHERE false
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) count(*) FROM visits WHERE false
-- source: "memory"."main"."visits" AS "r0"
-- filters: (FALSE)
-- sets: ()
-- counts: *
-- bound: 1
-- columns: count_star() BIGINT

-- title: WHERE with dates that Python cannot hold
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) sex, count(*) FROM visits WHERE day < 'infinity' AND coalesce(day, DATE '290000-01-01') < DATE '290000-01-01' GROUP BY sex
-- source: "memory"."main"."visits" AS "r0"
-- filters: try("r0"."day" < 'infinity') AND try(coalesce("r0"."day", CAST('290000-01-01' AS DATE)) < CAST('290000-01-01' AS DATE))
-- keys: sex = "r0"."sex" [F, M]
-- sets: (sex)
-- counts: *
-- bound: 1
-- columns: sex VARCHAR, count_star() BIGINT
