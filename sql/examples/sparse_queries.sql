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
