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

-- A second private table of the same patients shares their budget and is joined on the unit.
CREATE TABLE referrals AS
SELECT CAST(patient AS BIGINT) AS patient, ['letter', 'call'][CAST(1 + patient % 2 AS INTEGER)] AS channel
FROM range(5000) AS t(patient);

FROM dp($$
  CREATE PRIVACY POLICY ON referrals (
    PRIVACY UNIT patient REFERENCES visits.patient_id MAX ROWS 1,
    DOMAIN channel IN ('letter', 'call')
  )
$$);

FROM dp($$
  SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5)
         channel, ward, count(*) AS n FROM visits JOIN referrals ON patient_id = patient GROUP BY channel, ward
$$);
