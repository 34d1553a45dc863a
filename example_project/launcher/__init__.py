"""The steps of `make demo`: prepare databases, start web and worker, enqueue jobs."""
