"""DuckDB's functions that workers may run over private rows. Each result depends on one row alone."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """Function of DuckDB, with its permitted uses."""

    name: str  # the name in DuckDB's own parse tree
    row_local: bool = False  # the result depends on the arguments alone, and the call has no other effect
    makes_text: bool = False  # the function is row-local, and its result is a text, which takes room in a worker
    served: bool = False  # clients of the server may call it over released tables
    streams: bool = False  # the call is cheap enough for the process of all clients (server/syntax.py, STREAMED)
    aggregate: bool = False  # the function is an aggregate or a window function


def alike(names: str, **facts: bool) -> tuple[Function, ...]:
    """Returns functions that share the same facts."""
    return tuple(Function(name, **facts) for name in names.split())


ROW_LOCAL_FUNCTIONS = (
    *alike("+ - * / // % & | ~ << >> abs ceil floor round trunc sign sqrt ln log log2 log10 exp cbrt sin cos tan asin "
           "acos atan atan2 isnan isinf isfinite greatest least nullif length len strlen starts_with ends_with prefix "
           "suffix year month day dayofweek dayofyear weekofyear week quarter hour minute second isodow weekday decade "
           "century last_day date_part date_trunc date_diff", row_local=True, served=True, streams=True),
    *alike("** ^ ~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape ilike_escape not_ilike_escape regexp_full_match "
           "regexp_matches power signbit even gcd lcm xor row struct_pack contains strpos unicode ascii date_add "
           "make_date to_microseconds to_milliseconds to_seconds to_minutes to_hours to_days to_weeks to_months "
           "to_quarters to_years to_decades to_centuries to_millennia try_strptime", row_local=True, served=True),
    *alike("upper lower substring left right trim ltrim rtrim",
           row_local=True, makes_text=True, served=True, streams=True),
    *alike("|| concat replace reverse split_part strip_accents regexp_extract regexp_replace dayname monthname "
           "strftime", row_local=True, makes_text=True, served=True),
)  # fmt: skip


def is_date_format(text: str) -> bool:
    """Tells whether try_strptime reads any text by this format as a TIMESTAMP or NULL, the same in all time zones."""
    return re.fullmatch(r"(?:[^%\x00]|%-?[dmHIMS]|%[YybBfp%]){1,64}", text) is not None
