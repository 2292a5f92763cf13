-- Macros for analysts over released tables. Needs sql/macros.sql, which every published file has.
FROM dp($$
  CREATE PRIVATE VIEW by_age OPTIONS (epsilon = 1) AS
  SELECT age, count(*) AS n, dp_stderr(n) AS n_stderr FROM visits GROUP BY age
$$);

FROM dp($$
  CREATE PRIVATE VIEW cube_of_wards OPTIONS (epsilon = 1) AS
  SELECT sex, ward, count(*) AS n, dp_stderr(n) AS n_stderr FROM visits GROUP BY CUBE (sex, ward)
$$);

-- The interval of a sum of cells: each was measured by itself, so their noise is independent.
SELECT unnest(dp_sum_interval(n, n_stderr, independent := true, confidence := 0.9)) FROM private.by_age WHERE age >= 60;

-- Ages 18 to 64 from bins of ten years, those at the edges in proportion.
SELECT unnest(dp_sum_interval(n, n_stderr, weight := dp_range_share(age, 10, 18, 65), independent := true))
FROM private.by_age;

-- One margin of a cube, without the rolled-up column; and a difference of its cells, safe whatever their covariance.
FROM dp_margin('private.cube_of_wards', ['ward'], ['sex']) ORDER BY n DESC;

SELECT unnest(dp_sum_interval(n, n_stderr, weight := if(ward = 'oncology', 1, -1)))
FROM dp_margin('private.cube_of_wards', ['ward'], ['sex']) WHERE ward IN ('oncology', 'emergency');
