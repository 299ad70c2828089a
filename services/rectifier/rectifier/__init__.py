"""The FastAPI service that audits and gates messages."""
