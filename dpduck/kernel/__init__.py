"""Rows that carry their privacy unit, and expressions over one row. A referee of dpduck begins here."""
