"""Tests of django_jobqueue.checks: the messages of `manage.py check`."""
