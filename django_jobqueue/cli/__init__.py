"""The sub-commands of `manage.py jobqueue`, one module each.

A module has HELP, KEYS (what --json prints), add_arguments(parser) and run(flags,
terminal), which returns an Answer or raises a Refusal. They share arguments (readers of
flags), lookup (ids), documents (JSON) and tables (text).
"""
