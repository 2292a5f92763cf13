"""The auditor: neighbouring tables made from a policy, statements run over both many times, and what that tells."""
