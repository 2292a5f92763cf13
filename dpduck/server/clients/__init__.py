"""Code that listeners share: the desk, at which the page and the tools of agents ask for one principal."""
