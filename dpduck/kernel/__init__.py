"""Rows that carry their privacy unit, and expressions over one row: what a referee of dpduck reads first."""
