"""How a worker gets jobs: the claim loop, and what decides when and how many.

claimer.py is the loop; its parts say in their docstring whether they use the database.
"""
