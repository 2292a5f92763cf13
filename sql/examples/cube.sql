-- A cube: every margin from one epsilon, all of them consistent. GROUPING tells a rolled-up NULL from a NULL.
FROM dp_explain($$
  SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5)
         sex, age, ward, count(*) AS n FROM visits GROUP BY CUBE (sex, age, ward)
$$);

FROM dp($$
  SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5)
         sex, age, ward, GROUPING(sex, age, ward) AS rolled_up, count(*) AS n, dp_stderr(n)
  FROM visits GROUP BY CUBE (sex, age, ward) ORDER BY rolled_up, sex, age, ward
$$);

-- All margins of two of the three columns.
FROM dp($$
  SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5)
         sex, age, ward, count(*) AS n FROM visits GROUP BY MARGINALS (2, sex, age, ward)
$$);
