"""Documents about what a store has released, for those who must sign, cite or read it. No private row is opened."""
