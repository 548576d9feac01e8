"""What an application declares about its tasks, shared by those who enqueue jobs and those who run them.

definition   the declaration of a task, checked
arguments    bound and encoded when a job is enqueued, converted back when it runs
redeclared   whether a function is declared again, or another under its name
conversion   from JSON to what the handler's annotations ask for
verdict      what becomes of a job whose handler raised
"""

from penstock.task.definition import TaskDefinition, define

__all__ = ["TaskDefinition", "define"]
