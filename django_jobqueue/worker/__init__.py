"""The process that runs jobs: worker.py puts its loops together.

Rooms: claiming, running, supervision, health, startup.
"""
