"""Auditor: neighbouring tables from a policy, many runs of statements over both, and lower bounds on privacy losses."""
