-- Counts by ward, each with its standard error and a 90 % interval.
FROM dp($$
  SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, confidence = 0.9)
         ward, count(*) AS n, dp_stderr(n), dp_interval_low(n), dp_interval_high(n)
  FROM visits GROUP BY ward ORDER BY n DESC
$$);
