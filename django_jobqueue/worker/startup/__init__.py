"""From the command line to a running worker: checks, logs, signals, embedding."""
