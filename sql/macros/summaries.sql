-- Questions to released summaries. These macros need nothing but DuckDB (1.4 or newer): run this file, then ask.
--
-- Any summary: sums of n are unbiased for what its filter lets pass, and carry their standard error. What a filter has
-- lost is in it, spread over the rows by their size, where the number of rows is known (total_epsilon, or EXPECT ROWS of
-- the whole table); else it is NULL, and so is the error over no rows: a filter may have dropped them all:
--   SELECT sum(n), dp_sum_stderr(n_variance) FROM commute WHERE home LIKE '36%';
-- Dyadic ranges (GROUP BY RANGES(day)): codes count the labels of the domain from 0, first and last code included:
--   SELECT sum(n), dp_sum_stderr(n_variance) FROM days WHERE dp_in_range(day_level, day_node, 10, 90);
-- Haar coefficients (range_summary = 'haar') of a domain with 365 labels; over several columns the weights multiply:
--   SELECT sum(n * w), dp_sum_stderr(n_variance * w ** 2)
--   FROM (SELECT *, dp_haar_weight(day_level, day_node, 10, 90, 365) AS w FROM days);
-- Sketches: the key's labels as texts, in the order of GROUP BY:
--   FROM dp_sketch_point('sketched', ['36061', '36047']);

CREATE OR REPLACE MACRO dp_sum_stderr(variance) AS
    CASE WHEN count(*) = count(variance) THEN sqrt(sum(variance)) END;

-- Whether a dyadic interval is one of the few that make up the range: inside it, while its parent is not.
CREATE OR REPLACE MACRO dp_in_range(level, node, low, high) AS
    (CAST(node AS BIGINT) << level) >= low AND ((CAST(node AS BIGINT) + 1) << level) - 1 <= high
    AND NOT ((CAST(node AS BIGINT) >> 1 << (level + 1)) >= low
             AND (((CAST(node AS BIGINT) >> 1) + 1) << (level + 1)) - 1 <= high);

-- How many codes two ranges share.
CREATE OR REPLACE MACRO dp_shared(low, high, first, last) AS greatest(0, least(high, last) - greatest(low, first) + 1);

-- What a Haar coefficient adds to the sum over a range: half of the left half less half of the right, level by level.
CREATE OR REPLACE MACRO dp_haar_weight(level, node, low, high, labels) AS
    CASE WHEN level = 0 THEN (high - low + 1) / 2.0 ** ceil(log2(labels))
    ELSE (dp_shared(low, high, CAST(node AS BIGINT) << level, (CAST(node AS BIGINT) << level) + (1::BIGINT << (level - 1)) - 1)
        - dp_shared(low, high, (CAST(node AS BIGINT) << level) + (1::BIGINT << (level - 1)), ((CAST(node AS BIGINT) + 1) << level) - 1)
    ) / 2.0 ** level END;

-- The number of a label in a sketch's hash.
CREATE OR REPLACE MACRO dp_label_number(label) AS
    CASE WHEN label IS NULL THEN 0::HUGEINT
    ELSE CAST(1 + md5_number(CAST(label AS VARCHAR)) % 2305843009213693950 AS HUGEINT) END;

CREATE OR REPLACE MACRO dp_sketch_hash(coefficients, labels) AS
    (coefficients[1] + list_sum([CAST(coefficients[place + 1] AS HUGEINT) * dp_label_number(labels[place])
        % 2305843009213693951 for place in range(1, len(labels) + 1)])) % 2305843009213693951;

-- One estimate from each row of a sketch.
CREATE OR REPLACE MACRO dp_sketch_estimates(sketch, labels) AS TABLE
    WITH asked AS (
        SELECT sketch_row, CAST(dp_sketch_hash(bucket_hash, labels) % buckets AS BIGINT) AS bucket,
            CAST(1 - 2 * (dp_sketch_hash(sign_hash, labels) % 2) AS BIGINT) AS sign
        FROM query_table(sketch) WHERE bucket = 0)
    SELECT sketch_row, n * sign AS estimate FROM query_table(sketch) JOIN asked USING (sketch_row, bucket);

-- Their median and mean, and the standard error of the mean as the buckets themselves show it.
CREATE OR REPLACE MACRO dp_sketch_point(sketch, labels) AS TABLE
    SELECT median(estimate) AS n, avg(estimate) AS n_mean,
        (SELECT sqrt(avg(CAST(n AS DOUBLE) ** 2) / max(sketch_row)) FROM query_table(sketch)) AS stderr_mean
    FROM dp_sketch_estimates(sketch, labels);
