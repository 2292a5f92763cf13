"""From noisy measurements to consistent answers; never sees exact counts."""
