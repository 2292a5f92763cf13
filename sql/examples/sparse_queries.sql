-- Sparse queries: keys that nobody lists, one charge for each of three ways. Needs dpduck on the connection.
FROM dp_explain($$ CREATE PRIVATE HISTOGRAM by_day OPTIONS (epsilon = 1, sparsity = 7, queries = 50) ON visits (day) $$);

-- A noisy count for every day there ever was or will be, drawn when it is asked for.
FROM dp($$ CREATE PRIVATE HISTOGRAM by_day OPTIONS (epsilon = 1, sparsity = 7, queries = 50) ON visits (day) $$);
FROM dp_ask('by_day', [DATE '2026-03-01', DATE '2026-03-02', DATE '1926-03-01']);

-- Released once, asked for ever in plain SQL, by the name of a table or a CTE.
FROM dp($$ CREATE PRIVATE PROJECTION day_and_ward OPTIONS (epsilon = 2, sparsity = 2, queries = 50, rows = 300) AS
           SELECT day, ward FROM visits $$);
WITH q AS (SELECT dp_key(['2026-03-01', 'oncology']) AS key, 1.0 AS weight) FROM dp_project('day_and_ward', 'q');

-- Adaptive questions: the hypothesis answers, and says so, until it is far enough off to be worth an update.
FROM dp($$ CREATE PRIVATE SESSION about_wards OPTIONS (epsilon = 5, sparsity = 2, queries = 50, updates = 3)
           ON visits (ward) $$);
FROM dp_ask('about_wards', ['oncology', 'cardiology']);
FROM dp_ask('about_wards', ['oncology'], weights := [0.5]);
FROM dp_sessions();

-- Every conjunction of six symptoms at once, decoded over the 64 keys that there are: 729 answers, one charge.
CREATE TABLE symptoms AS
SELECT person % 2 = 0 AS fever, person % 3 = 0 AS cough, person % 5 = 0 AS rash, person % 7 = 0 AS pain,
       person % 11 < 5 AS fatigue, person % 13 < 4 AS nausea
FROM range(5000) AS t(person);
FROM dp($$ CREATE PRIVACY POLICY ON symptoms (PRIVACY UNIT ROW, BUDGET (epsilon = 2, delta = 1e-5)) $$);
FROM dp($$ CREATE PRIVATE PROJECTION by_symptom OPTIONS (epsilon = 1, delta = 1e-6, sparsity = 64, queries = 729,
           rows = 400) AS SELECT fever, cough, rash, pain, fatigue, nausea FROM symptoms $$);
WITH listed AS (SELECT unnest(dp_conjunction(list_transform(range(6), lambda i: NULL::BOOLEAN))) AS key),
conjunctions AS (
    SELECT list_transform(range(6), lambda i: CASE n // CAST(3 ** i AS BIGINT) % 3 WHEN 0 THEN true WHEN 1 THEN false END)
           AS query
    FROM range(729) AS numbers(n)),
asked AS (SELECT query, unnest(dp_conjunction(query)) AS key, 1 AS weight FROM conjunctions)
SELECT query, answer, stderr FROM dp_decode('by_symptom', 'asked', 'listed');

-- Disjunctions and parities are lists of keys, too: fever or no rash, and an odd number of fever, cough and pain.
WITH asked AS (
    SELECT 'fever or no rash' AS query, 1 AS weight,
           unnest(dp_disjunction([true, NULL, false, NULL, NULL, NULL])) AS key
    UNION ALL
    SELECT 'odd', 1, unnest(dp_parity([true, true, NULL, true, NULL, NULL])))
FROM dp_decode('by_symptom', 'asked', 'asked');
