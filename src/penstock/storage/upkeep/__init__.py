"""Upkeep's acts, each bounded and safe in any number of workers at once.

sweep         promote, rescue, unblock, expire, park, fold
prune         old tables are let go whole
tables_ahead  new tables are made before they are needed
"""
