{# Releases a model as a private view, once. A view of the same name in the model's own schema reads the release, so
   that ref() and all tools find it there. The statement runs outside of a transaction: its charge must not be undone. #}
{% materialization private_view, adapter='duckdb' %}
  {%- set target = this.incorporate(type='view') -%}
  {% do dpduck.require_free_name(target) %}
  {%- set own = {} -%}
  {%- for key, value in model.config.items() if key != 'meta' and value is not none -%}{% do own.update({key: value}) %}{%- endfor -%}
  {%- set release = dpduck.ask_plugin('statement', {'name': this.identifier, 'config': own, 'sql': sql}) -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% do adapter.commit() %}

  {% do dpduck.say_price(release) %}
  {% call statement('main', auto_begin=False) -%}
    FROM dp({{ dpduck.text(release) }})
  {%- endcall %}
  {% call statement('view', auto_begin=False) -%}
    CREATE OR REPLACE VIEW {{ target }} AS SELECT * FROM private.main.{{ adapter.quote(this.identifier) }}
  {%- endcall %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do persist_docs(target, model) %}
  {% do adapter.commit() %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{# Says what a model costs, before it is charged. #}
{% macro say_price(release) -%}
  {%- set plan = run_query("SELECT coalesce(price, note) FROM dp_plan(" ~ dpduck.text(release) ~ ") WHERE number = 1") -%}
  {% do log(this.identifier ~ ": " ~ plan.columns[0].values()[0], info=True) %}
{%- endmacro %}

{# Refuses what would replace a table, give two models one private view, or build from no rows. #}
{% macro require_free_name(target) -%}
  {%- set found = load_cached_relation(this) -%}
  {%- if found is not none and not found.is_view -%}
    {% do exceptions.raise_compiler_error(target ~ " is a table, which a private view does not replace; accepted: another alias") %}
  {%- endif -%}
  {%- for node in graph.nodes.values() if node.resource_type == 'model' and node.unique_id != model.unique_id
      and node.config.materialized == 'private_view' and (node.alias | lower) == (this.identifier | lower) -%}
    {% do exceptions.raise_compiler_error("the model " ~ node.name ~ " makes a private view of this name, too; accepted: another alias") %}
  {%- endfor -%}
  {%- if flags.EMPTY or model.config.get('contract', {}).get('enforced') -%}
    {% do exceptions.raise_compiler_error("a private view has no contract and is not built from no rows; accepted: dbt build without --empty, is_private as a test") %}
  {%- endif -%}
{%- endmacro %}
