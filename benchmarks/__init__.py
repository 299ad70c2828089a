"""What the performance figures come from."""
