"""The state machine: one file for each transition, the only place that moves a job.

Each transition takes the Database it works on. Statements written by hand are for
PostgreSQL; every other database runs the version of the same name in portable/.
"""
