"""What a host does, as scripts."""
