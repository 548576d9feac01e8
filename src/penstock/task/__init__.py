"""What an application declares about its tasks, shared by those who enqueue jobs and those who run them.

definition   the declaration of a task, checked
arguments    bound and encoded when a job is enqueued, converted back when it runs
positional   the same, converted back for a call by position, where a handler is a plain function
batch_arguments   the same of a handler that is given several jobs together, and what it may return
undeclared   a task that is known by its name alone
redeclared   whether a function is declared again, or another under its name
context      what a handler may know and say about the job, or the batch, it runs
batch_context     the context of a batch, made of those of its jobs
conversion   from JSON to what the handler's annotations ask for
middleware   what the application puts around every run of a handler
own_loop     an event loop for what is awaited where no worker's is at hand
verdict      what becomes of a job whose handler raised
"""

from penstock.task.context import BatchContext, Context
from penstock.task.definition import TaskDefinition, define

__all__ = ["BatchContext", "Context", "TaskDefinition", "define"]
