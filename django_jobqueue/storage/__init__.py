"""What transitions use: the database handle, notifications, look-ups, worker rows.

Modules here read, or write what is not a job's status. Only lifecycle/ moves a job.
"""
