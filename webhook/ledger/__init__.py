"""The account book: what every node has and who is charged for it."""
