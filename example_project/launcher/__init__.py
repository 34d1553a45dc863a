"""What `make demo` does: prepare the databases, start web and worker, enqueue jobs."""
