{# `dbt show` prints rows, and its log keeps them. So it shows the release of a private view, and no private table. #}
{% macro get_show_sql(compiled_code, sql_header, limit) -%}
  {%- if model.config.materialized == 'private_view' -%}
    {%- set shown = "SELECT * FROM private.main." ~ adapter.quote(model.alias) -%}
  {%- else -%}
    {%- set shown = compiled_code -%}
    {% do dpduck.require_no_rows(compiled_code) %}
  {%- endif -%}
  {%- if sql_header is not none -%}
  {{ sql_header }}
  {%- endif %}
  {{ get_limit_subquery_sql(shown, limit) }}
{%- endmacro %}

{# Refuses SQL that may read a table with a policy: a guard against accidents and no gate. Without the plugin there is no such table. #}
{% macro require_no_rows(sql) -%}
  {%- set loaded = run_query("SELECT count(*) FROM duckdb_functions() WHERE function_name = 'dp_policies'") -%}
  {%- if loaded.columns[0].values()[0] -%}
    {%- set policies = run_query("SELECT DISTINCT table_name FROM dp_policies()").columns[0].values() | list -%}
    {%- set listed = run_query("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal AND database_name <> 'private' "
      ~ "UNION ALL SELECT function_name || '()', macro_definition FROM duckdb_functions() "
      ~ "WHERE macro_definition IS NOT NULL AND NOT internal AND NOT starts_with(function_name, 'dp_')") -%}
    {%- set views = [] -%}
    {%- for row in listed.rows -%}{% do views.append([row[0], row[1]]) %}{%- endfor -%}
    {%- set private = dpduck.ask_plugin('private_names', {'sql': sql, 'policies': policies, 'views': views}) -%}
    {%- if private -%}
      {% do exceptions.raise_compiler_error("dbt show prints and logs rows, and " ~ private[0]
        ~ " has private ones; accepted: dbt show of a private view") %}
    {%- endif -%}
  {%- endif -%}
{%- endmacro %}

{# Refuses a project in which another model, a test or a snapshot reads a private source or model. For on-run-start. #}
{% macro require_private() -%}
  {%- if execute -%}
    {%- set policies = run_query("SELECT DISTINCT lower(split_part(table_name, '.', -1)) FROM dp_policies()").columns[0].values() | list -%}
    {%- for node in graph.nodes.values() if node.config.materialized != 'private_view' -%}
      {%- for parent in node.get('depends_on', {}).get('nodes', []) -%}
        {%- set read = graph.sources.get(parent) or graph.nodes.get(parent) or {} -%}
        {%- set name = read.get('identifier') or read.get('alias') or '' -%}
        {%- if (name | lower) in policies and read.get('config', {}).get('materialized') != 'private_view' -%}
          {% do exceptions.raise_compiler_error(node.resource_type ~ " " ~ node.name ~ " reads the private table " ~ name
            ~ "; accepted: materialized='private_view'") %}
        {%- endif -%}
      {%- endfor -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro %}
