"""One folder a mechanism, and what all of them share: the order of a release."""
