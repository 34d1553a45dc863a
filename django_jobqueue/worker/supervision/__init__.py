"""The parent process: starts, watches and replaces the processes that run jobs.

It runs no code of a handler, so no job can stop it.
"""
