{# Calls of dpduck's functions from macros. The plugin dpduck.dbt has put the functions on the connection. #}

{% macro text(value) -%}
  {{ return("'" ~ (value | string | replace("'", "''")) ~ "'") }}
{%- endmacro %}

{# Asks the function of the plugin. Fails with its refusal, which is one line. #}
{% macro ask_plugin(action, argument) -%}
  {%- set known = run_query("SELECT count(*) FROM duckdb_functions() WHERE function_name = 'dpduck_dbt'") -%}
  {%- if known.columns[0].values()[0] == 0 -%}
    {% do exceptions.raise_compiler_error("dpduck is not loaded; accepted: plugins: [{module: dpduck.dbt}] in the profile") %}
  {%- endif -%}
  {%- set said = run_query("SELECT dpduck_dbt(" ~ dpduck.text(action) ~ ", " ~ dpduck.text(tojson(argument)) ~ ") AS said") -%}
  {%- set answer = fromjson(said.columns[0].values()[0]) -%}
  {%- if answer.get("refused") -%}
    {% do exceptions.raise_compiler_error(answer["refused"]) %}
  {%- endif -%}
  {{ return(answer["answer"]) }}
{%- endmacro %}
