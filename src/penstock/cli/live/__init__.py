"""What is watched at a terminal: looks at the system, again and again, and a screen that shows the last one.

looks       the looks of the last minute, and the rates between them
attention   what needs attention, worst first, in words
rows        the queues as a table: its columns, and in which order they come
screen      the terminal: its keys, its size, and that it is given back as it was
keyboard    bytes as keys
page        what may fill the screen: lines, a table, keys
queues, queue, halted, dead, job, workers, help     the pages
reader      the thread that asks the databases, so that a key is answered while they do not
top         all of it together: the page, what is asked of a person, what a key does
"""
