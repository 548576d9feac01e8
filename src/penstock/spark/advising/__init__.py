"""`ps.advise`: what another number of partitions would do for a queue, from the keys its jobs really have.

A partition has one owner at a time, so the work is done when the fullest partition's is. A key is never divided, and
where order is kept its jobs run one after the other: it is not done before the key that needs the longest, however many
partitions there are. So a number of partitions takes as long as its fullest or as that key, whichever takes longer; its
speed-up is the time of one partition by that, its balance how even its partitions are.

advise       the call: reads the keys and their times, counts, advises
key_weights  jobs by partition for each number of partitions, and the keys that need the longest, counted by Spark
advice       what follows from that
sentences    the same in words
advice_page  the same as a page, with the keys in slow_keys
"""
