-- Tables grow, on every path, in the first file of the release. Those that were taken out of `job` and `finished`, and are
-- read until they are dropped, grow with them.

alter table penstock.ready add column grown int not null default 7;
alter table penstock.lease add column grown int not null default 7;
alter table penstock.scheduled add column grown int not null default 7;
alter table penstock.blocked add column grown int not null default 7;
alter table penstock.dead add column grown int not null default 7;
alter table penstock.tally add column grown int not null default 7;
alter table penstock.total add column grown int not null default 7;
alter table penstock.outbox add column grown int not null default 7;
