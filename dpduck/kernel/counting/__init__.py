"""Exact counts of a job. Claim: integers go in, and only declared noisy answers come out."""
