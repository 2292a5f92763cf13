-- Macros for analysts over released tables: pure SQL for any DuckDB from 1.5, present in every published file.
-- Each stands alone, so that they work from an attached file too: published.dp_margin(..). Nothing here costs budget.

-- The weighted sum of released cells with its standard error and an interval of at least this confidence:
--   SELECT dp_sum_interval(n, n_stderr) FROM by_ward WHERE building = 'north'
--   SELECT dp_sum_interval(n, n_stderr, weight := CASE sex WHEN 'F' THEN 1 ELSE -1 END) FROM by_sex
-- By default it covers however the noise of the cells is correlated, as in cubes: the standard errors are added up.
-- independent := true adds up the variances: right for the cells of one GROUP BY list or of one grouping set that was
-- measured by itself (strategy 'I' or 'Q'), and too narrow elsewhere; dp_stderr_of knows the exact covariances.
-- The half-width is that of a sum of Laplace or Gaussian noises (strategies/recovery/intervals.py, SumMargin), with the
-- normal quantile by P. J. Acklam's rational approximation (relative error below 1.2e-9), rounded up.
CREATE OR REPLACE MACRO dp_sum_interval(n, stderr, weight := 1, confidence := 0.95, independent := false) AS
list_transform(
  list_transform(
    list_transform(
      [{
        'estimate': sum(CAST(n AS DOUBLE) * weight),
        'stderr': CASE WHEN independent THEN sqrt(sum(pow(CAST(stderr AS DOUBLE) * weight, 2)))
                       ELSE sum(abs(CAST(stderr AS DOUBLE) * weight)) END,
        'step': CAST(max(abs(weight)) AS DOUBLE),
        'outside': CASE WHEN confidence BETWEEN 0.5 AND 0.999999 THEN 1 - CAST(confidence AS DOUBLE)
                        ELSE error('confidence is out of range; accepted: confidence from 0.5 to 0.999999') END
      }],
      lambda s: {'estimate': s.estimate, 'stderr': s.stderr, 'step': s.step, 'outside': s.outside,
                 'q': CASE WHEN s.outside < 0.0485 THEN sqrt(-2 * ln(s.outside / 2)) ELSE 0.5 - s.outside / 2 END}
    ),
    lambda s: {'estimate': s.estimate, 'stderr': s.stderr, 'step': s.step, 'outside': s.outside,
               'normal': 1.000000002e0 * CASE WHEN s.outside < 0.0485 THEN
        -(((((-7.784894002430293e-03 * s.q - 3.223964580411365e-01) * s.q - 2.400758277161838e+00) * s.q
            - 2.549732539343734e+00) * s.q + 4.374664141464968e+00) * s.q + 2.938163982698783e+00)
        / ((((7.784695709041462e-03 * s.q + 3.224671290700398e-01) * s.q + 2.445134137142996e+00) * s.q
            + 3.754408661907416e+00) * s.q + 1e0)
      ELSE s.q
        * (((((-3.969683028665376e+01 * s.q * s.q + 2.209460984245205e+02) * s.q * s.q - 2.759285104469687e+02)
            * s.q * s.q + 1.383577518672690e+02) * s.q * s.q - 3.066479806614716e+01) * s.q * s.q
            + 2.506628277459239e+00)
        / (((((-5.447609879822406e+01 * s.q * s.q + 1.615858368580409e+02) * s.q * s.q - 1.556989798598866e+02)
            * s.q * s.q + 6.680131188771972e+01) * s.q * s.q - 1.328068155288572e+01) * s.q * s.q + 1e0)
      END}
  ),
  lambda s: {
    'estimate': s.estimate,
    'stderr': s.stderr,
    'low': s.estimate - least(s.stderr / sqrt(s.outside), greatest(s.normal, -ln(s.outside) / sqrt(2.0)) * s.stderr
                              + CASE WHEN s.stderr < 2 * s.step THEN s.step ELSE s.step / 2 END),
    'high': s.estimate + least(s.stderr / sqrt(s.outside), greatest(s.normal, -ln(s.outside) / sqrt(2.0)) * s.stderr
                               + CASE WHEN s.stderr < 2 * s.step THEN s.step ELSE s.step / 2 END)
  }
)[1];

-- The standard error of a plain sum over a view with form = 'cells', from the covariance of its cells. cells: all
-- columns of the view that tell cells apart, as texts; the rows are those of some values of each column:
--   SELECT ward, sum(n) AS n, dp_cells_stderr(n_variances, [ward, sex, CAST(age AS VARCHAR)]) FROM by_cell GROUP BY ward
-- With m_i of the n_i values of column i the variance is the sum over sets U of columns of v_U times m_i - m_i^2/n_i for
-- each i in U and m_i^2/n_i for each other one. Of other sets of rows it is the standard errors added up, which is enough.
-- NULL where the view's margins do not determine the sum. For an interval: dp_sum_interval(n, stderr) around it.
CREATE OR REPLACE MACRO dp_cells_stderr(variances, cells) AS
list_transform(
  list_transform(
    [{
      'sizes': list_transform(string_split(split_part(any_value(variances), '|', 1), ','), lambda x: CAST(x AS DOUBLE)),
      'parts': list_transform(string_split(split_part(any_value(variances), '|', 2), ','), lambda x: CAST(x AS DOUBLE)),
      'rows': list(list_transform(cells, lambda x: coalesce('=' || CAST(x AS VARCHAR), '')))
    }],
    lambda s: {
      'sizes': s.sizes, 'parts': s.parts, 'rows': CAST(len(s.rows) AS DOUBLE),
      'chosen': list_transform(range(1, len(s.sizes) + 1), lambda i:
        CAST(len(list_distinct(list_transform(s.rows, lambda x: x[i]))) AS DOUBLE))
    }),
  lambda s: list_transform(
    list_transform(
      [CASE WHEN list_product(s.chosen) = s.rows THEN s.chosen ELSE list_transform(s.chosen, lambda x: 1e0) END],
      lambda m: list_sum(list_transform(range(0, len(s.parts)), lambda u: list_transform(
        [list_product(list_transform(range(1, len(m) + 1), lambda i: CASE WHEN (u >> (i - 1)) & 1 = 1
          THEN m[i] - m[i] * m[i] / s.sizes[i] ELSE m[i] * m[i] / s.sizes[i] END))],
        lambda share: CASE WHEN share > 0 THEN share * s.parts[u + 1] ELSE 0 END)[1]))),
    lambda v: CASE WHEN isfinite(v) THEN sqrt(v) * CASE WHEN list_product(s.chosen) = s.rows THEN 1 ELSE s.rows END END
  )[1]
)[1];

-- The sum over the part of a summary that a condition names; keys that the summary left out count as 0, not as NULL:
--   SELECT dp_subset_estimate(n, home LIKE '36%') FROM commute
CREATE OR REPLACE MACRO dp_subset_estimate(n, part := true) AS coalesce(sum(n) FILTER (WHERE part), 0);

-- The share of the bin [key, key + width) that lies in [low, high): 0, 1, or a fraction at the edges.
--   SELECT dp_sum_interval(n, n_stderr, weight := dp_range_share(age, 5, 18, 65)) FROM by_age
CREATE OR REPLACE MACRO dp_range_share(key, width, low, high) AS
greatest(0e0, least(CAST(key AS DOUBLE) + width, CAST(high AS DOUBLE)) - greatest(CAST(key AS DOUBLE), CAST(low AS DOUBLE)))
/ width;

-- The sum over [low, high) of a summary or a binned table, spread evenly inside bins; width 1 for whole numbers:
--   SELECT dp_range_estimate(age, n, 18, 65, width := 5) FROM by_age
CREATE OR REPLACE MACRO dp_range_estimate(key, n, low, high, width := 1) AS
coalesce(sum(n * (greatest(0e0, least(CAST(key AS DOUBLE) + width, CAST(high AS DOUBLE))
                                - greatest(CAST(key AS DOUBLE), CAST(low AS DOUBLE))) / width)), 0);

-- One margin of a cube as a flat table: the rows that are grouped by the kept columns alone, without the columns that
-- are rolled up:
--   FROM dp_margin('ward_cube', ['ward'], ['sex'])
-- A total and the group of NULL have the same keys. The column grouping_level of a private view tells them apart: it has
-- the names of the columns that a row is grouped by, and () for the total. A table without it is refused.
CREATE OR REPLACE MACRO dp_margin(cube, kept, rolled_up) AS TABLE
SELECT COLUMNS(lambda c: NOT list_contains(list_transform(rolled_up, lambda x: lower(x)), lower(c))
                         AND lower(c) <> 'grouping_level' AND NOT starts_with(c, 'dpduck_margin_'))
FROM (SELECT *, CASE
    WHEN NOT list_has_all(list_transform(struct_keys(t), lambda x: lower(x)),
                          list_transform(list_concat(kept, rolled_up), lambda x: lower(x)))
    THEN error('the cube has no such column; accepted: lists of its grouping columns')
    WHEN grouping_level IS NULL OR regexp_full_match(grouping_level, '[0-9]+')
    THEN error('the cube has no grouping_level, which tells a total from the group of NULL; accepted: its CREATE PRIVATE '
               || 'VIEW again, which adds it; GROUPING(a, b) AS level in the SELECT of another table, and '
               || 'WHERE level = dp_grouping_id([''a'', ''b''], [''a''])')
    ELSE list_sort(string_split(lower(grouping_level), ', ')) = list_sort(string_split(
        CASE WHEN len(kept) = 0 THEN '()' ELSE array_to_string(list_transform(kept, lambda x:
            CASE WHEN regexp_full_match(x, '[A-Za-z_][A-Za-z0-9_]*') THEN lower(x)
                 ELSE '"' || replace(lower(x), '"', '""') || '"' END), ', ') END, ', '))
    END AS dpduck_margin_chosen
  FROM (SELECT CAST(NULL AS VARCHAR) AS grouping_level WHERE false UNION ALL BY NAME FROM query_table(cube)) AS t)
WHERE dpduck_margin_chosen;

-- The value of GROUPING(all columns in order) for the margin of some of them:
--   FROM ward_cube WHERE rolled_up = dp_grouping_id(['sex', 'ward'], ['ward'])
CREATE OR REPLACE MACRO dp_grouping_id(columns_in_order, kept) AS
list_sum(list_transform(columns_in_order, lambda name, place: CASE WHEN list_contains(kept, name) THEN 0
                                          ELSE 1 << CAST(len(columns_in_order) - place AS INTEGER) END));
