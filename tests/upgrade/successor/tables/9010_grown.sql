-- Tables grow, on every path, in the first file of the release. Those that were taken out of `job` and `finished`, and are
-- read until they are dropped, grow with them.

alter table @schema@.ready add column grown int not null default 7;
alter table @schema@.lease add column grown int not null default 7;
alter table @schema@.scheduled add column grown int not null default 7;
alter table @schema@.blocked add column grown int not null default 7;
alter table @schema@.dead add column grown int not null default 7;
alter table @schema@.tally add column grown int not null default 7;
alter table @schema@.total add column grown int not null default 7;
alter table @schema@.outbox add column grown int not null default 7;
