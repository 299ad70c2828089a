"""Deterministic checks: what is wrong by proof, without a model.

A check accuses only where the error can be shown from the text alone, and then names the exact
correction. Whatever it cannot read, it leaves to the judge.
"""
