"""Store beside a database: catalog, sandbox, policies, releases, views. Private rows lie only in separate files."""
