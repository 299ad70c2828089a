"""The domain, ports and adapters that the rectifier and the pool-builder share."""
