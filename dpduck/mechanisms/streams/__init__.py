"""Continual releases: a statistic of each period, published when the period closes, all for one charge."""
