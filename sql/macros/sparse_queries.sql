-- Sparse queries over released projections: any DuckDB from 1.5 on, dpduck is not needed.
-- A projection is two tables: name ("row", value) and name_seed (word, coefficients, and what is public about its noise).
-- The sign of a key in a row is a bit of a polynomial over the field of 2^61 - 1 elements at the key's hash
-- (docs/sparse_queries.md); dpduck/algebra/hashing.py computes the same in Python.

-- Where released tables are: here, unless dpduck is loaded, which puts the store's name before it.
CREATE OR REPLACE MACRO dp_released(name) AS name;

-- The canonical text of a key of several columns, each given as text.
CREATE OR REPLACE MACRO dp_key(parts) AS
    array_to_string(list_transform(parts, lambda part: strlen(part) || ':' || part), ',');

-- The keys of a conjunction over boolean columns: true or false for a literal, NULL for a column that is free.
-- Each free column doubles the number of keys: at most 20 of them can be free.
CREATE OR REPLACE MACRO dp_conjunction(literals) AS
    CASE WHEN len(literals) - list_count(literals) > 20
    THEN error('more than 20 free columns in a conjunction; accepted: true or false for more of them')
    WHEN len(literals) = 1 THEN list_transform(
        list_filter([true, false], lambda choice: literals[1] IS NULL OR literals[1] = choice),
        lambda choice: CAST(choice AS VARCHAR))
    ELSE list_reduce(
        list_transform(literals[1:CASE WHEN len(literals) - list_count(literals) > 20 THEN 1 ELSE len(literals) END],
            lambda literal: list_transform(
            list_filter([true, false], lambda choice: literal IS NULL OR literal = choice),
            lambda choice: dp_key([CAST(choice AS VARCHAR)]))),
        lambda left_keys, right_keys: flatten(list_transform(left_keys, lambda one:
            list_transform(right_keys, lambda other: one || ',' || other)))) END;

-- The keys of a disjunction over boolean columns: those in which at least one literal holds; NULL for a free column.
CREATE OR REPLACE MACRO dp_disjunction(literals) AS
    list_transform(
        list_filter(
            range(CASE WHEN len(literals) > 20
                  THEN error('more than 20 columns in dp_disjunction; accepted: at most 20 columns')
                  ELSE CAST(1 AS BIGINT) << len(literals) END),
            lambda bits: len(list_filter(range(1, len(literals) + 1), lambda i: coalesce(literals[i] = ((bits >> (i - 1)) & 1 = 1), false))) > 0),
        lambda bits: CASE WHEN len(literals) = 1 THEN CAST(bits & 1 = 1 AS VARCHAR)
            ELSE dp_key(list_transform(range(1, len(literals) + 1),
                lambda i: CAST((bits >> (i - 1)) & 1 = 1 AS VARCHAR))) END);

-- The keys of a parity over boolean columns: those in which an odd number of literals hold; NULL for a free column.
CREATE OR REPLACE MACRO dp_parity(literals) AS
    list_transform(
        list_filter(
            range(CASE WHEN len(literals) > 20
                  THEN error('more than 20 columns in dp_parity; accepted: at most 20 columns')
                  ELSE CAST(1 AS BIGINT) << len(literals) END),
            lambda bits: len(list_filter(range(1, len(literals) + 1), lambda i: coalesce(literals[i] = ((bits >> (i - 1)) & 1 = 1), false))) % 2 = 1),
        lambda bits: CASE WHEN len(literals) = 1 THEN CAST(bits & 1 = 1 AS VARCHAR)
            ELSE dp_key(list_transform(range(1, len(literals) + 1),
                lambda i: CAST((bits >> (i - 1)) & 1 = 1 AS VARCHAR))) END);

-- One question, the name of a table or a CTE with columns key and weight: its answer, its standard error, and the
-- margin that none of the declared number of questions exceeds at the declared confidence.
CREATE OR REPLACE MACRO dp_project(projection, question) AS TABLE
    WITH
    points AS MATERIALIZED (
        SELECT key, CAST((md5_number(key) >> 64) % 2305843009213693951 AS HUGEINT) AS x
        FROM (SELECT DISTINCT CAST(your_question.key AS VARCHAR) AS key FROM query_table(question) AS your_question)
    ),
    power_2 AS (SELECT key, [CAST(1 AS HUGEINT), x] AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM points),
    power_4 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM power_2),
    power_8 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM power_4),
    power_16 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM power_8),
    power_32 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers FROM power_16),
    key_limbs AS (
        SELECT key, list_transform(powers, lambda v: CAST(v & 2097151 AS DOUBLE)) AS a0, list_transform(powers, lambda v: CAST((v >> 21) & 2097151 AS DOUBLE)) AS a1, list_transform(powers, lambda v: CAST(v >> 42 AS DOUBLE)) AS a2
        FROM power_32
    ),
    keys AS MATERIALIZED (SELECT key, a0, a0 || a1 AS a01, a0 || a1 || a2 AS a012, a1 || a2 AS a12, a2 FROM key_limbs),
    word_limbs AS (
        SELECT word, list_transform(coefficients, lambda v: CAST(v & 2097151 AS DOUBLE)) AS c0, list_transform(coefficients, lambda v: CAST((v >> 21) & 2097151 AS DOUBLE)) AS c1, list_transform(coefficients, lambda v: CAST(v >> 42 AS DOUBLE)) AS c2
        FROM query_table(dp_released(projection) || '_seed')
    ),
    -- for each word and each piece of 6 of its bits, the sum of the released rows that each pattern stands for
    piece_values AS (
        SELECT "row" // 60 AS word, ("row" % 60) // 6 AS piece, "row" % 6 AS bit, value
        FROM query_table(dp_released(projection))
    ),
    piece_totals AS (
        SELECT word, piece, pattern,
               CAST(sum(CASE WHEN (pattern >> bit) & 1 = 1 THEN -value ELSE value END) AS DOUBLE) AS total
        FROM piece_values, range(64) AS patterns(pattern) GROUP BY ALL
    ),
    all_totals AS (
        SELECT word, piece, pattern, coalesce(total, 0) AS total
        FROM (SELECT word, piece, pattern FROM (SELECT word FROM word_limbs), range(10) AS pieces(piece), range(64) AS patterns(pattern))
        LEFT JOIN piece_totals USING (word, piece, pattern)
    ),
    words AS MATERIALIZED (
        SELECT word, c0, c1 || c0 AS c10, c2 || c1 || c0 AS c210, c2 || c1 AS c21, c2, totals
        FROM word_limbs
        JOIN (SELECT word, list(total ORDER BY piece, pattern) AS totals FROM all_totals GROUP BY word) USING (word)
    ),
    -- products of 21-bit limbs, added up exactly in doubles, then put together modulo 2^61 - 1
    limb_sums AS (
        SELECT key, totals,
               CAST(list_inner_product(a0, c0) AS UBIGINT) AS s0, CAST(list_inner_product(a01, c10) AS UBIGINT) AS s1,
               CAST(list_inner_product(a012, c210) AS UBIGINT) AS s2, CAST(list_inner_product(a12, c21) AS UBIGINT) AS s3,
               CAST(list_inner_product(a2, c2) AS UBIGINT) AS s4
        FROM keys, words
    ),
    hashed AS (
        SELECT key, totals,
               (s0 + ((s1 & 1099511627775) << 21) + (s1 >> 40) + ((s2 & 524287) << 42) + (s2 >> 19) + s3 * 4
                + ((s4 & 274877906943) << 23) + (s4 >> 38)) % CAST(2305843009213693951 AS UBIGINT) AS word
        FROM limb_sums
    ),
    estimates AS (
        SELECT key, sum(
            totals[0 + CAST((word >> 0) & 63 AS INTEGER) + 1]
            + totals[64 + CAST((word >> 6) & 63 AS INTEGER) + 1]
            + totals[128 + CAST((word >> 12) & 63 AS INTEGER) + 1]
            + totals[192 + CAST((word >> 18) & 63 AS INTEGER) + 1]
            + totals[256 + CAST((word >> 24) & 63 AS INTEGER) + 1]
            + totals[320 + CAST((word >> 30) & 63 AS INTEGER) + 1]
            + totals[384 + CAST((word >> 36) & 63 AS INTEGER) + 1]
            + totals[448 + CAST((word >> 42) & 63 AS INTEGER) + 1]
            + totals[512 + CAST((word >> 48) & 63 AS INTEGER) + 1]
            + totals[576 + CAST((word >> 54) & 63 AS INTEGER) + 1]
        ) AS total
        FROM hashed GROUP BY key
    ),
    facts AS (
        SELECT any_value(projected_rows) AS row_count, any_value(noise_variance) AS noise,
               any_value(noise_quantile) AS near, any_value(distortion_quantile) AS far
        FROM query_table(dp_released(projection) || '_seed')
    ),
    moment AS (
        SELECT greatest(0, sum(CAST(value AS DOUBLE) * value) / any_value(row_count) - any_value(noise)) AS f
        FROM query_table(dp_released(projection)), facts
    ),
    asked AS (
        SELECT CAST(your_question.key AS VARCHAR) AS key, sum(CAST(your_question.weight AS DOUBLE)) AS weight
        FROM query_table(question) AS your_question GROUP BY ALL
    ),
    answers AS (
        SELECT sum(weight * total) / any_value(row_count) AS answer, sum(weight * weight) AS w
        FROM asked JOIN estimates USING (key), facts
    )
    SELECT answer,
           sqrt((w * noise + w * f + answer * answer) / row_count) AS stderr,
           near * sqrt(w * noise / row_count) + far * sqrt((w * f + answer * answer) / row_count) AS margin
    -- the projection first: a name that is missing is then the one that was given, not its seed's
    FROM (SELECT count(*) FROM query_table(dp_released(projection))) AS released, answers, facts, moment;

-- Many questions at once: a table with columns query, key and weight.
CREATE OR REPLACE MACRO dp_project_all(projection, question) AS TABLE
    WITH
    points AS MATERIALIZED (
        SELECT key, CAST((md5_number(key) >> 64) % 2305843009213693951 AS HUGEINT) AS x
        FROM (SELECT DISTINCT CAST(your_question.key AS VARCHAR) AS key FROM query_table(question) AS your_question)
    ),
    power_2 AS (SELECT key, [CAST(1 AS HUGEINT), x] AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM points),
    power_4 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM power_2),
    power_8 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM power_4),
    power_16 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM power_8),
    power_32 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers FROM power_16),
    key_limbs AS (
        SELECT key, list_transform(powers, lambda v: CAST(v & 2097151 AS DOUBLE)) AS a0, list_transform(powers, lambda v: CAST((v >> 21) & 2097151 AS DOUBLE)) AS a1, list_transform(powers, lambda v: CAST(v >> 42 AS DOUBLE)) AS a2
        FROM power_32
    ),
    keys AS MATERIALIZED (SELECT key, a0, a0 || a1 AS a01, a0 || a1 || a2 AS a012, a1 || a2 AS a12, a2 FROM key_limbs),
    word_limbs AS (
        SELECT word, list_transform(coefficients, lambda v: CAST(v & 2097151 AS DOUBLE)) AS c0, list_transform(coefficients, lambda v: CAST((v >> 21) & 2097151 AS DOUBLE)) AS c1, list_transform(coefficients, lambda v: CAST(v >> 42 AS DOUBLE)) AS c2
        FROM query_table(dp_released(projection) || '_seed')
    ),
    -- for each word and each piece of 6 of its bits, the sum of the released rows that each pattern stands for
    piece_values AS (
        SELECT "row" // 60 AS word, ("row" % 60) // 6 AS piece, "row" % 6 AS bit, value
        FROM query_table(dp_released(projection))
    ),
    piece_totals AS (
        SELECT word, piece, pattern,
               CAST(sum(CASE WHEN (pattern >> bit) & 1 = 1 THEN -value ELSE value END) AS DOUBLE) AS total
        FROM piece_values, range(64) AS patterns(pattern) GROUP BY ALL
    ),
    all_totals AS (
        SELECT word, piece, pattern, coalesce(total, 0) AS total
        FROM (SELECT word, piece, pattern FROM (SELECT word FROM word_limbs), range(10) AS pieces(piece), range(64) AS patterns(pattern))
        LEFT JOIN piece_totals USING (word, piece, pattern)
    ),
    words AS MATERIALIZED (
        SELECT word, c0, c1 || c0 AS c10, c2 || c1 || c0 AS c210, c2 || c1 AS c21, c2, totals
        FROM word_limbs
        JOIN (SELECT word, list(total ORDER BY piece, pattern) AS totals FROM all_totals GROUP BY word) USING (word)
    ),
    -- products of 21-bit limbs, added up exactly in doubles, then put together modulo 2^61 - 1
    limb_sums AS (
        SELECT key, totals,
               CAST(list_inner_product(a0, c0) AS UBIGINT) AS s0, CAST(list_inner_product(a01, c10) AS UBIGINT) AS s1,
               CAST(list_inner_product(a012, c210) AS UBIGINT) AS s2, CAST(list_inner_product(a12, c21) AS UBIGINT) AS s3,
               CAST(list_inner_product(a2, c2) AS UBIGINT) AS s4
        FROM keys, words
    ),
    hashed AS (
        SELECT key, totals,
               (s0 + ((s1 & 1099511627775) << 21) + (s1 >> 40) + ((s2 & 524287) << 42) + (s2 >> 19) + s3 * 4
                + ((s4 & 274877906943) << 23) + (s4 >> 38)) % CAST(2305843009213693951 AS UBIGINT) AS word
        FROM limb_sums
    ),
    estimates AS (
        SELECT key, sum(
            totals[0 + CAST((word >> 0) & 63 AS INTEGER) + 1]
            + totals[64 + CAST((word >> 6) & 63 AS INTEGER) + 1]
            + totals[128 + CAST((word >> 12) & 63 AS INTEGER) + 1]
            + totals[192 + CAST((word >> 18) & 63 AS INTEGER) + 1]
            + totals[256 + CAST((word >> 24) & 63 AS INTEGER) + 1]
            + totals[320 + CAST((word >> 30) & 63 AS INTEGER) + 1]
            + totals[384 + CAST((word >> 36) & 63 AS INTEGER) + 1]
            + totals[448 + CAST((word >> 42) & 63 AS INTEGER) + 1]
            + totals[512 + CAST((word >> 48) & 63 AS INTEGER) + 1]
            + totals[576 + CAST((word >> 54) & 63 AS INTEGER) + 1]
        ) AS total
        FROM hashed GROUP BY key
    ),
    facts AS (
        SELECT any_value(projected_rows) AS row_count, any_value(noise_variance) AS noise,
               any_value(noise_quantile) AS near, any_value(distortion_quantile) AS far
        FROM query_table(dp_released(projection) || '_seed')
    ),
    moment AS (
        SELECT greatest(0, sum(CAST(value AS DOUBLE) * value) / any_value(row_count) - any_value(noise)) AS f
        FROM query_table(dp_released(projection)), facts
    ),
    asked AS (
        SELECT your_question.query, CAST(your_question.key AS VARCHAR) AS key,
               sum(CAST(your_question.weight AS DOUBLE)) AS weight
        FROM query_table(question) AS your_question GROUP BY ALL
    ),
    answers AS (
        SELECT query, sum(weight * total) / any_value(row_count) AS answer, sum(weight * weight) AS w
        FROM asked JOIN estimates USING (key), facts GROUP BY query
    )
    SELECT query, answer,
           sqrt((w * noise + w * f + answer * answer) / row_count) AS stderr,
           near * sqrt(w * noise / row_count) + far * sqrt((w * f + answer * answer) / row_count) AS margin
    -- the projection first: a name that is missing is then the one that was given, not its seed's
    FROM (SELECT count(*) FROM query_table(dp_released(projection))) AS released, answers, facts, moment
    ORDER BY query;

-- Many questions decoded together: least squares over the listed keys, those of the questions among them. Listed keys
-- no longer distort one another: what is left is noise, and rows under keys that nobody listed. `keys` names a table
-- with a column key.
CREATE OR REPLACE MACRO dp_decode(projection, question, keys) AS TABLE
    WITH RECURSIVE
    -- the tables of the caller first: no name below can then hide theirs
    asked AS MATERIALIZED (
        SELECT your_question.query, CAST(your_question.key AS VARCHAR) AS key,
               sum(CAST(your_question.weight AS DOUBLE)) AS weight
        FROM query_table(question) AS your_question GROUP BY ALL
    ),
    named AS MATERIALIZED (SELECT CAST(your_keys.key AS VARCHAR) AS key FROM query_table(keys) AS your_keys),
    facts AS MATERIALIZED (
        SELECT any_value(projected_rows) AS row_count, any_value(noise_variance) AS noise,
               any_value(noise_quantile) AS near, any_value(distortion_quantile) AS far,
               -- so many keys leave enough rows over to tell the error by
               greatest(0, least(5000, row_count - CAST(ceil(4 * near * near) AS INTEGER))) AS most
        -- the projection first: a name that is missing is then the one that was given, not its seed's
        FROM (SELECT count(*) FROM query_table(dp_released(projection))) AS released,
             query_table(dp_released(projection) || '_seed')
    ),
    listed AS MATERIALIZED (
        SELECT key, row_number() OVER (ORDER BY key) AS place
        FROM (SELECT key FROM asked UNION SELECT key FROM named) WHERE key IS NOT NULL
    ),
    counted AS MATERIALIZED (
        SELECT CASE WHEN count(*) > any_value(most) THEN error(
            count(*) || ' listed keys for a projection of ' || any_value(row_count) || ' rows; accepted: at most '
            || any_value(most) || ' keys') ELSE count(*) END AS key_count
        FROM listed, facts
    ),
    points AS MATERIALIZED (
        SELECT key, CAST((md5_number(key) >> 64) % 2305843009213693951 AS HUGEINT) AS x
        FROM listed, counted WHERE key_count > 0
    ),
    power_2 AS (SELECT key, [CAST(1 AS HUGEINT), x] AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM points),
    power_4 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM power_2),
    power_8 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM power_4),
    power_16 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers, list_transform(list_transform([x * x], lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61))[1] AS x FROM power_8),
    power_32 AS (SELECT key, powers || list_transform(list_transform(list_transform(powers, lambda v: v * x), lambda t: (t & 2305843009213693951) + (t >> 61)), lambda t: (t & 2305843009213693951) + (t >> 61)) AS powers FROM power_16),
    key_limbs AS (
        SELECT key, list_transform(powers, lambda v: CAST(v & 2097151 AS DOUBLE)) AS a0, list_transform(powers, lambda v: CAST((v >> 21) & 2097151 AS DOUBLE)) AS a1, list_transform(powers, lambda v: CAST(v >> 42 AS DOUBLE)) AS a2
        FROM power_32
    ),
    keys AS MATERIALIZED (SELECT key, a0, a0 || a1 AS a01, a0 || a1 || a2 AS a012, a1 || a2 AS a12, a2 FROM key_limbs),
    word_limbs AS (
        SELECT word, list_transform(coefficients, lambda v: CAST(v & 2097151 AS DOUBLE)) AS c0, list_transform(coefficients, lambda v: CAST((v >> 21) & 2097151 AS DOUBLE)) AS c1, list_transform(coefficients, lambda v: CAST(v >> 42 AS DOUBLE)) AS c2
        FROM query_table(dp_released(projection) || '_seed')
    ),
    -- for each word and each piece of 6 of its bits, the sum of the released rows that each pattern stands for
    piece_values AS (
        SELECT "row" // 60 AS word, ("row" % 60) // 6 AS piece, "row" % 6 AS bit, value
        FROM query_table(dp_released(projection))
    ),
    piece_totals AS (
        SELECT word, piece, pattern,
               CAST(sum(CASE WHEN (pattern >> bit) & 1 = 1 THEN -value ELSE value END) AS DOUBLE) AS total
        FROM piece_values, range(64) AS patterns(pattern) GROUP BY ALL
    ),
    all_totals AS (
        SELECT word, piece, pattern, coalesce(total, 0) AS total
        FROM (SELECT word, piece, pattern FROM (SELECT word FROM word_limbs), range(10) AS pieces(piece), range(64) AS patterns(pattern))
        LEFT JOIN piece_totals USING (word, piece, pattern)
    ),
    words AS MATERIALIZED (
        SELECT word AS number, c0, c1 || c0 AS c10, c2 || c1 || c0 AS c210, c2 || c1 AS c21, c2, totals
        FROM word_limbs
        JOIN (SELECT word, list(total ORDER BY piece, pattern) AS totals FROM all_totals GROUP BY word) USING (word)
    ),
    -- products of 21-bit limbs, added up exactly in doubles, then put together modulo 2^61 - 1
    limb_sums AS (
        SELECT key, number, totals,
               CAST(list_inner_product(a0, c0) AS UBIGINT) AS s0, CAST(list_inner_product(a01, c10) AS UBIGINT) AS s1,
               CAST(list_inner_product(a012, c210) AS UBIGINT) AS s2, CAST(list_inner_product(a12, c21) AS UBIGINT) AS s3,
               CAST(list_inner_product(a2, c2) AS UBIGINT) AS s4
        FROM keys, words
    ),
    hashed AS MATERIALIZED (
        SELECT key, number, totals,
               (s0 + ((s1 & 1099511627775) << 21) + (s1 >> 40) + ((s2 & 524287) << 42) + (s2 >> 19) + s3 * 4
                + ((s4 & 274877906943) << 23) + (s4 >> 38)) % CAST(2305843009213693951 AS UBIGINT) AS word
        FROM limb_sums
    ),
    -- the product of two keys' signs over all rows, by counting the bits in which they differ
    bits AS MATERIALIZED (
        SELECT key, CAST(string_agg(lpad(bin(
            word & ((CAST(1 AS UBIGINT) << least(60, row_count - 60 * number)) - 1)), 60, '0'), '' ORDER BY number)
            AS BIT) AS signs
        FROM hashed, facts GROUP BY key
    ),
    signed AS MATERIALIZED (SELECT place, signs FROM bits JOIN listed USING (key)),
    halves AS MATERIALIZED (
        SELECT one.place AS i, other.place AS j,
               CAST(row_count - 2 * bit_count(xor(one.signs, other.signs)) AS DOUBLE) AS product
        FROM signed AS one JOIN signed AS other ON one.place <= other.place, facts
    ),
    products AS MATERIALIZED (
        SELECT i, list(product ORDER BY j) AS products
        FROM (SELECT i, j, product FROM halves UNION ALL SELECT j, i, product FROM halves WHERE i < j) GROUP BY i
    ),
    estimates AS (
        SELECT key, sum(
            totals[0 + CAST((word >> 0) & 63 AS INTEGER) + 1]
            + totals[64 + CAST((word >> 6) & 63 AS INTEGER) + 1]
            + totals[128 + CAST((word >> 12) & 63 AS INTEGER) + 1]
            + totals[192 + CAST((word >> 18) & 63 AS INTEGER) + 1]
            + totals[256 + CAST((word >> 24) & 63 AS INTEGER) + 1]
            + totals[320 + CAST((word >> 30) & 63 AS INTEGER) + 1]
            + totals[384 + CAST((word >> 36) & 63 AS INTEGER) + 1]
            + totals[448 + CAST((word >> 42) & 63 AS INTEGER) + 1]
            + totals[512 + CAST((word >> 48) & 63 AS INTEGER) + 1]
            + totals[576 + CAST((word >> 54) & 63 AS INTEGER) + 1]
        ) AS total
        FROM hashed GROUP BY key
    ),
    goal AS MATERIALIZED (SELECT list(total ORDER BY place) AS totals FROM estimates JOIN listed USING (key)),
    -- conjugate gradients: counts x with products * x = totals, r what is missing yet, d the next direction
    steps AS (
        SELECT 0 AS step, list_transform(totals, lambda t: CAST(0 AS DOUBLE)) AS x, totals AS r, totals AS d,
               list_inner_product(totals, totals) AS missing
        FROM goal WHERE len(totals) > 0
        UNION ALL
        SELECT step + 1, new_x, new_r,
               list_transform(list_zip(new_r, d), lambda pair: pair[1] + new_missing / missing * pair[2]), new_missing
        FROM (
            SELECT *, list_inner_product(new_r, new_r) AS new_missing
            FROM (
                SELECT step, d, missing,
                       list_transform(list_zip(x, d), lambda pair: pair[1] + size * pair[2]) AS new_x,
                       list_transform(list_zip(r, image), lambda pair: pair[1] - size * pair[2]) AS new_r
                FROM (
                    SELECT any_value(step) AS step, any_value(x) AS x, any_value(r) AS r, any_value(d) AS d,
                           any_value(missing) AS missing, list(list_inner_product(products, d) ORDER BY i) AS image,
                           any_value(missing) / list_inner_product(any_value(d), image) AS size
                    FROM steps, products, goal
                    WHERE missing > 1e-22 * list_inner_product(totals, totals) AND step < 2000
                    HAVING count(*) > 0
                )
            )
        )
    ),
    solved AS MATERIALIZED (
        SELECT CASE WHEN max(step) = 2000 THEN error('the decoding did not settle; accepted: fewer keys')
               ELSE max_by(x, step) END AS x
        FROM steps
    ),
    -- what the listed keys leave of the released rows: noise, and rows of other keys
    spread AS MATERIALIZED (
        SELECT row_count, key_count, row_count - key_count AS free_rows, noise, near, far,
               (squares - list_inner_product(x, totals)) / (row_count - key_count) AS rest
        FROM facts, counted, goal, solved,
             (SELECT sum(CAST(value AS DOUBLE) * value) AS squares FROM query_table(dp_released(projection)))
    ),
    counts AS (SELECT key, x[place] AS amount FROM listed, solved),
    answers AS (
        SELECT query, sum(weight * amount) AS answer, sum(weight * weight) AS w
        FROM asked JOIN counts USING (key) GROUP BY query
    )
    SELECT query, answer, sqrt(w * greatest(noise, rest) / (free_rows - 1)) AS stderr,
           (near * sqrt(noise) + far * sqrt(greatest(0, rest * (1 + near * sqrt(5 / free_rows)) - noise)))
           * sqrt(w / (free_rows - near * sqrt(2 * free_rows))) AS margin
    FROM answers, spread ORDER BY query;
