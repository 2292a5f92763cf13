"""Trials: how useful a statement would be on the true data, for the owner alone. Nothing is charged or stored."""
