-- A join with a public table along its key; the public column's values are a domain by themselves.
FROM dp($$
  SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5)
         building, count(*) AS n FROM visits JOIN wards ON visits.ward = wards.name GROUP BY building
$$);

-- Subqueries and CTEs that filter or project.
FROM dp($$
  WITH summer AS (SELECT sex, age FROM visits WHERE day >= DATE '2026-06-01')
  SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) sex, count(*) AS n FROM summer GROUP BY sex
$$);
