"""The rows behind a synthetic table, as SQL that the owner's process runs over the private table."""

from __future__ import annotations

from sqlglot import exp

from dpduck.language.statements.synthetic import CreateSynthetic
from dpduck.mechanisms.synthetic.request import SyntheticRequest


def data_sql(statement: CreateSynthetic, request: SyntheticRequest) -> str | None:
    """Returns SQL of the rows with the statement's own WHERE. None if the rows are not of one stored table.

    The statement's tree is changed.
    """
    source, written = request.base.asked_tables, statement.query
    conditions = {part for part in ("where", "joins", "with_") if written.args.get(part)}
    if len(source) != 1 or written.args["from_"].this.find(exp.Query) is not None or not conditions <= {"where"}:
        return None
    written.args["from_"].this.replace(exp.to_table(source[0].sql, dialect="duckdb"))
    return written.sql("duckdb")
