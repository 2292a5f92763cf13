{# Passes if a relation is a private view of dpduck: of the store, a view of a model over it, or in a published file. #}
{% test is_private(model) %}
  {%- if execute and model is string -%}
    {% do exceptions.raise_compiler_error("is_private looks at a whole relation; accepted: the test without where") %}
  {%- endif -%}
  {%- set name = dpduck.text(model.identifier | lower) -%}
  {%- set database = dpduck.text(model.database | lower) -%}
  SELECT {{ dpduck.text(model ~ " is no private view") }} AS problem
  WHERE NOT EXISTS ({{ dpduck.released_sql(model, name, database) if execute else "SELECT 1" }})
{% endtest %}

{# Returns a query with a row if the relation is released. The package of macros may be used without the plugin. #}
{% macro released_sql(relation, name, database) -%}
  {%- set loaded = run_query("SELECT count(*) FROM duckdb_functions() WHERE function_name = 'dp_releases'") -%}
  {%- set listed = run_query("SELECT count(*) FROM duckdb_tables() WHERE lower(database_name) = " ~ database
      ~ " AND schema_name = 'main' AND table_name = 'dpduck_releases'") -%}
  {%- if listed.columns[0].values()[0] -%}
    SELECT 1 FROM {{ adapter.quote(relation.database) }}.main.dpduck_releases WHERE lower(name) = {{ name }}
  {%- elif loaded.columns[0].values()[0] -%}
    SELECT 1 FROM dp_releases() AS r WHERE r.kind = 'view' AND lower(r.name) = {{ name }} AND ({{ database }} = 'private'
      OR EXISTS (FROM duckdb_views() AS v WHERE lower(v.database_name) = {{ database }}
        AND lower(v.schema_name) = {{ dpduck.text(relation.schema | lower) }} AND lower(v.view_name) = {{ name }}
        AND regexp_full_match(lower(v.sql), 'create view [a-z0-9_."]+ as select \* from private\.main\."?' || {{ name }} || '"?;')))
  {%- else -%}
    SELECT 1 WHERE FALSE
  {%- endif -%}
{%- endmacro %}
