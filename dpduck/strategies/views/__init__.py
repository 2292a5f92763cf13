"""The search for optimised views."""
