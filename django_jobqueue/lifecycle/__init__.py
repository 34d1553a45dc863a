"""The state machine: one file for each arrow, the only place that moves a job.

Each arrow takes the Database it works on. The hand-written statements are PostgreSQL's;
every other database, and the tests on PostgreSQL too, run the portable version.
"""
