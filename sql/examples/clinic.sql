-- A small clinic to try the other examples on. Run this file first, on a connection where dpduck is loaded.
CREATE TABLE wards AS
SELECT * FROM (VALUES ('cardiology', 'north'), ('emergency', 'south'), ('oncology', 'north')) AS t(name, building);

CREATE TABLE visits AS
SELECT visit // 4 AS patient_id,
       CASE WHEN visit // 4 % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
       visit // 4 % 90 AS age,
       ['cardiology', 'emergency', 'oncology'][CAST(1 + visit % 3 AS INTEGER)] AS ward,
       DATE '2026-01-01' + CAST(visit % 180 AS INTEGER) AS day
FROM range(20000) AS t(visit);

FROM dp($$ DECLARE PUBLIC TABLE wards $$);

FROM dp($$
  CREATE PRIVACY POLICY ON visits (
    PRIVACY UNIT patient_id MAX ROWS 4,
    BUDGET (epsilon = 20),
    DOMAIN sex  IN ('F', 'M'),
    DOMAIN age  RANGE 0 TO 90 STEP 10,
    DOMAIN ward FROM wards.name,
    DOMAIN day  RANGE '2026-01-01' TO '2026-07-01' STEP INTERVAL 1 MONTH,
    EXPECT ROWS 20000
  )
$$);
