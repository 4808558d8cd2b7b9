"""When a run prunes, how much, and what that costs and saves."""
