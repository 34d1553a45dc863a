"""The process that walks the arrows: claims jobs, runs them, and writes their ends."""
