"""Test doubles that ship beside their ports."""
