"""All permitted functions of DuckDB: ROW_LOCAL_FUNCTIONS, and those that only clients of a server may call.

Clients call the latter in the public database, which holds no private row. So a referee need not read this file.
"""

from __future__ import annotations

from dpduck.values.functions import ROW_LOCAL_FUNCTIONS, alike

TABLE = (
    *ROW_LOCAL_FUNCTIONS,
    *alike("! !__postfix && @ fdiv divide mod fmod multiply subtract round_even ceiling cot degrees radians pi hash "
           "coalesce ifnull struct_extract lcase ucase substr date_sub datesub datediff datepart datetrunc dayofmonth "
           "epoch isoyear yearweek", served=True, streams=True),
    *alike("->> <@ @> ^@ add pow sinh cosh tanh asinh acosh atanh gamma lgamma factorial nextafter bin hex md5 "
           "bit_count bit_length octet_length char_length character_length chr ord concat_ws instr position translate "
           "split str_split string_split regexp_escape levenshtein damerau_levenshtein jaccard jaro_similarity "
           "jaro_winkler_similarity typeof enum_code json_array json_object age era julian today current_date timezone "
           "days_in_month microsecond millisecond millennium epoch_ms epoch_us make_time make_timestamp to_timestamp "
           "strptime time_bucket filter unnest element_at map map_entries map_extract map_from_entries "
           "map_keys map_values array_distinct array_extract array_has array_has_all array_has_any array_length "
           "array_position array_slice array_sort array_to_string array_value list_aggregate list_any_value list_apply "
           "list_avg list_concat list_contains list_count list_distinct list_element list_extract list_filter "
           "list_first list_has list_has_all list_has_any list_last list_max list_median list_min list_position "
           "list_product list_reverse list_reverse_sort list_slice list_sort list_stddev_samp list_sum list_transform "
           "list_unique list_value list_var_samp list_zip", served=True),
    *alike("any_value avg bool_and bool_or count count_if count_star countif first last max mean min stddev stddev_pop "
           "stddev_samp sum var_pop var_samp variance", aggregate=True, served=True, streams=True),
    *alike("approx_count_distinct approx_quantile arbitrary arg_max arg_max_null arg_min arg_min_null argmax argmin "
           "array_agg bit_and bit_or bit_xor corr covar_pop covar_samp cume_dist dense_rank entropy favg first_value "
           "fsum geomean geometric_mean group_concat histogram kahan_sum kurtosis kurtosis_pop lag last_value lead "
           "list listagg mad max_by median min_by mode nth_value ntile percent_rank product quantile quantile_cont "
           "quantile_disc rank regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy "
           "regr_syy row_number sem skewness string_agg sumkahan wavg weighted_avg", aggregate=True, served=True),
)  # fmt: skip
