"""Hostile rows, notifications, handlers and receivers, sent to one worker in turn.

After each of them 20 healthy jobs must succeed, and nothing else may have changed.
"""
