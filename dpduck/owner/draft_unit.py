"""The privacy unit of a draft, by foreign keys, names of columns and unique keys."""

from __future__ import annotations

import re

from dpduck.language.rows.facts import Policy
from dpduck.owner.draft_remarks import MOST_NAMES, TODO, name_in_comment, remark_lines
from dpduck.owner.draft_schema import Schema
from dpduck.owner.policy_text import name_text, table_text
from dpduck.store.catalog import Catalog
from dpduck.values.quoting import fold
from dpduck.values.sqltypes import sql_type

_PERSON = re.compile(
    r"(person|people|patient|customer|client|user|member|employee|student|pupil|household|subscriber|citizen|resident|"
    r"passenger|voter|taxpayer|patron|donor|tenant|guest|driver|rider|player|visitor|respondent|participant)s?"
    r"([ _-]?(id|key|no|nr|num|number|code|uuid))?|ssn|pid|uid|nino",
    re.IGNORECASE,
)
"""Names of columns that often identify the protected person."""

WHO = (
    "who is protected? All rows with one value of this column are protected together: name the column that "
    "identifies a person. PRIVACY UNIT ROW, without MAX ROWS, protects single rows: take it only if no person has two."
)
MOST = (
    "MAX ROWS is the most rows of one unit that an answer sees; others are left out. In a budget of epsilon alone, "
    "more rows add noise to every answer: begin with 10. In a budget with a delta or in rho, begin with 100: there "
    "max_norm_contributed bounds the noise. Type it in OPTIONS if a statement has fewer than 20 groups. dp_check tells "
    "you what each would leave out. Do not copy the data's own maximum."
)


def unit_lines(schema: Schema, catalog: Catalog) -> tuple[list[str], str]:
    """Returns the lines of PRIVACY UNIT and the unit's column, which is "" if nothing suggests one."""
    column, reference, why = _find_unit(schema, catalog)
    if not column:
        kinds = ((candidate.name, sql_type(candidate.type_name)) for candidate in schema.columns)
        others = [name for name, kind in kinds if kind.is_whole or kind.is_unit_part][:MOST_NAMES]
        asked = f" Its columns of numbers and texts: {', '.join(map(name_in_comment, others))}." if others else ""
        lines = [*remark_lines(f"{TODO}: {WHO}{asked}"), *remark_lines(f"{TODO}: {MOST}")]
        return [*lines, f"    PRIVACY UNIT {TODO} MAX ROWS {TODO},"], ""
    written = name_text(column) + reference
    if schema.is_key(column):
        remarks, most = [*remark_lines(f"{why} No two rows share a value of it.")], "1"
    else:
        remarks, most = [*remark_lines(why), *remark_lines(f"{TODO}: {MOST}")], TODO
    return [*remarks, f"    PRIVACY UNIT {written} MAX ROWS {most},"], column


def _find_unit(schema: Schema, catalog: Catalog) -> tuple[str, str, str]:
    """Returns the column that most likely identifies a row's person, its REFERENCES clause, and a remark why."""
    private = [link for link in schema.links if not catalog.is_public(link[1])]
    for column, other, key in private:
        policy = catalog.policy(other)
        if policy is not None and policy.unit.column is not None and _leads(policy, key, catalog):
            reference = f" REFERENCES {table_text(other, schema.home)}.{name_text(key)}"
            return column, reference, f"A foreign key leads to {name_in_comment(other.table)}, and shares its budget."
    for column, other, key in private:
        reference = f" REFERENCES {table_text(other, schema.home)}.{name_text(key)}"
        parent = name_in_comment(other.table)
        why = f"{TODO}: a foreign key leads to {parent}: is a row of that table whom you protect? Otherwise: "
        return column, reference, why + WHO
    named = [candidate.name for candidate in schema.columns if _PERSON.fullmatch(candidate.name)]
    if named:
        more = f" It may also be {', '.join(map(name_in_comment, named[1:MOST_NAMES]))}." if len(named) > 1 else ""
        return named[0], "", f"{TODO}: the name of {name_in_comment(named[0])} suggests it; {WHO}{more}"
    keys = [candidate.name for candidate in schema.columns if schema.is_key(candidate.name)]
    if keys:
        why = f"{TODO}: {name_in_comment(keys[0])} is the table's key, right where one row is one person; {WHO}"
        return keys[0], "", why
    return "", "", ""


def _leads(policy: Policy, key: str, catalog: Catalog) -> bool:
    """Tells whether the column `key` of a policy's table is its unit, or a unique key, so that references work."""
    return fold(policy.unit.column or "") == fold(key) or (key,) in catalog.unique_keys(policy.table)
