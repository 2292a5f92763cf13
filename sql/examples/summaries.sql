-- Noisy summaries of a domain that is far too large for a noisy table: 4,000,000 pairs of places, 195 of them occupied.
CREATE TABLE trips AS
SELECT 'place ' || (trip * trip % 29) AS home, 'place ' || (trip * 7 % 13) AS work,
       CAST(trip % 365 AS INTEGER) AS day, trip // 2 AS person
FROM range(40000) AS t(trip);

CREATE TABLE places AS SELECT 'place ' || range AS name FROM range(2000);

FROM dp($$ DECLARE PUBLIC TABLE places $$);

FROM dp($$
  CREATE PRIVACY POLICY ON trips (
    PRIVACY UNIT person MAX ROWS 2,
    BUDGET (epsilon = 10),
    DOMAIN home FROM places.name,
    DOMAIN work FROM places.name,
    DOMAIN day  RANGE 0 TO 365 STEP 1,
    EXPECT ROWS 40000
  )
$$);

-- What each kind of summary would hold, and how far off sums of 10, 1,000 and 100,000 cells would be; spends nothing.
SELECT strategy, chosen, cells, error_10, error_1000, error_100000, note
FROM dp_explain($$
  CREATE PRIVATE VIEW commutes OPTIONS (epsilon = 2, summary = 'auto', summary_size = 500) AS
  SELECT home, work, count(*) AS n FROM trips GROUP BY home, work
$$);

-- A table of about 500 rows in place of 4,000,000. n: unbiased weights; n_raw: noisy counts; n_variance: of sums.
FROM dp($$
  CREATE PRIVATE VIEW commutes OPTIONS (epsilon = 2, summary = 'auto', summary_size = 500) AS
  SELECT home, work, count(*) AS n FROM trips GROUP BY home, work
$$);

-- Any subset, in plain SQL, with its standard error.
SELECT sum(n) AS trips_to_three, dp_sum_stderr(n_variance) AS standard_error
FROM private.commutes WHERE work = 'place 3';

-- Every range of days at once: the dyadic intervals that make up a range are summed. Days are numbered from 0.
FROM dp($$
  CREATE PRIVATE VIEW days OPTIONS (epsilon = 2, summary = 'filter_priority', summary_size = 300, range_summary = 'dyadic') AS
  SELECT day, range_end(day) AS until, count(*) AS n FROM trips GROUP BY RANGES(day)
$$);
SELECT sum(n) AS trips_in_range, dp_sum_stderr(n_variance) AS standard_error
FROM private.days WHERE dp_in_range(day_level, day_node, 31, 180);

-- A sketch answers for one pair at a time.
FROM dp($$
  CREATE PRIVATE VIEW sketched OPTIONS (epsilon = 2, summary = 'sketch', summary_size = 5000, sketch_rows = 5) AS
  SELECT home, work, count(*) AS n FROM trips GROUP BY home, work
$$);
FROM dp_sketch_point('private.sketched', ['place 1', 'place 3']);
