"""Tables whose rows lie in an engine: what is known of them, and who counts them there."""
