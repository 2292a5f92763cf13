-- Keys may be expressions over columns with a domain; conditions may use any column; answers may be computed with.
FROM dp($$
  SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5)
         upper(ward) AS ward, CASE WHEN age < 60 THEN 'younger' ELSE 'older' END AS generation,
         count(*) AS visits, count(*) FILTER (WHERE month(day) = 1) AS in_january,
         rank() OVER (ORDER BY count(*) DESC) AS place
  FROM visits WHERE day < DATE '2026-06-01'
  GROUP BY ALL HAVING count(*) > 0 ORDER BY place
$$);

-- Plain SQL may stand around the annotated SELECT.
FROM dp($$
  SELECT building, sum(n) AS n
  FROM (SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) ward, count(*) AS n FROM visits GROUP BY ward) AS counts
  JOIN wards ON ward = name GROUP BY building
$$);
