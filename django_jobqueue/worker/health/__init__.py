"""Shows whether a worker makes progress, and acts if it does not.

Answers probes, systemd and the supervisor from memory; a watchdog is the last resort.
"""
