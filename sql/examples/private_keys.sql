-- Reasons for calls are free text: which of them exist is private, and no domain can be declared.
CREATE TABLE calls AS
SELECT call // 2 AS caller,
       CASE WHEN call % 10 < 7 THEN ['fever', 'cough', 'rash'][CAST(1 + call % 3 AS INTEGER)]
            ELSE 'something said by caller ' || call END AS reason
FROM range(10000) AS t(call);

FROM dp($$
  CREATE PRIVACY POLICY ON calls (
    PRIVACY UNIT caller MAX ROWS 2,
    BUDGET (epsilon = 3, delta = 1e-6, delta_keys = 5e-7)
  )
$$);

-- The threshold, and how likely a reason of 1, 10, 50, 100 and 500 callers is shown; spends nothing.
SELECT strategy, threshold, published_1, published_10, published_50, published_100, published_500
FROM dp_explain($$
  SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-7, group_selection_strategy = GAUSSIAN_THRESHOLD)
  reason, count(*) AS n FROM calls GROUP BY reason
$$);

-- Reasons of enough callers, and one more row for all others: its columns are NULL and its GROUPING is 1.
FROM dp($$
  SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (
    epsilon = 1, delta = 1e-7, group_selection_strategy = GAUSSIAN_THRESHOLD, max_groups_contributed = 2, other = TRUE)
  CASE GROUPING(reason) WHEN 1 THEN '(other reasons)' ELSE reason END AS reason,
  count(*) AS n, dp_stderr(n) AS n_stderr
  FROM calls GROUP BY reason ORDER BY n DESC
$$);
