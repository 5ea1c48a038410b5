"""The way of one review: decode, route, decide, act, respond."""
