"""Adapters: where foreign clients are called and their errors translated, once."""
