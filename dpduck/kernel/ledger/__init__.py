"""The ledger of privacy budgets. Claim: nothing leaves that was not paid for."""
