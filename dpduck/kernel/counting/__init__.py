"""Claim: integers go in, only declared noisy answers come out."""
