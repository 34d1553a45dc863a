"""The sub-commands of `manage.py jobqueue`, one module each.

A module has HELP, KEYS (what --json prints), add_arguments(parser) and run(flags,
terminal), which returns an Answer or raises a Refusal. Beside them: arguments (what a
person may type), lookup (ids), documents and tables (what is shown).
"""
