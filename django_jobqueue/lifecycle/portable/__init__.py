"""The ORM versions of the transitions, under the same file names.

Databases other than PostgreSQL run them. Tests run them on PostgreSQL too: random
histories must end the same way in both versions.
"""
