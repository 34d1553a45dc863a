"""Tests of django_jobqueue.models."""
