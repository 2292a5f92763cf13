"""Auditor: makes neighbouring tables from a policy, runs statements often over both, and bounds privacy losses."""
