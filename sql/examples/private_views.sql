-- A private view is an ordinary table: any number of readers, no further cost.
FROM dp($$
  CREATE PRIVATE VIEW ward_cube OPTIONS (epsilon = 1) AS
  SELECT sex, ward, count(*) AS n, dp_stderr(n) AS n_stderr FROM visits GROUP BY CUBE (sex, ward)
$$);

FROM private.ward_cube ORDER BY n DESC;

FROM dp_releases();

FROM dp_budget();

-- The owner says when the data has changed enough for a new answer; until then the same question is free.
FROM dp($$ ALTER PRIVACY POLICY ON visits NEW EPOCH $$);

FROM dp($$ DROP PRIVATE VIEW ward_cube $$);
