"""Commands of ``rectifier``, a module each."""
