-- History on its way into a lake.

-- The duty of archiving. Whoever takes it counts the number up and draws a token; every act of an archive that changes,
-- lists or removes anything names both and holds the row until its transaction ends. So an archive that has been
-- replaced can do nothing more, and nobody replaces one in the middle of an act. The token is for numbers that come
-- again after a restore.
create table @schema@.archive_duty (
    is_the_only_one boolean primary key default true constraint there_is_one_duty check (is_the_only_one),
    number          bigint not null default 0,
    token           uuid not null default gen_random_uuid(),
    location        text,
    began_at        timestamptz,
    ended_at        timestamptz
);
insert into @schema@.archive_duty default values;

comment on column @schema@.archive_duty.location is 'The lake that the last archive went to.';
comment on column @schema@.archive_duty.ended_at is 'When the last archive was through; null while it runs, and after it was killed.';

-- Each time that a slice is written into a lake, under an identity that never comes again:
--
--   begun ─► verified ─► lost            verified: count and checksum of the files were those of the slice
--     └─────────┴──────► abandoned       abandoned: its files are removed, now and by later archives
--   set_aside                            found in the lake, of a past that this database does not have; not read
--
-- A verified one is what history reads once its slice is gone from here. It is lost when somebody gave up its files.
create table @schema@.writing (
    identity   uuid primary key,
    slice      int not null,
    duty       bigint not null,
    lake       text not null,
    location   text not null,
    folder     text not null,
    state      text not null constraint state_of_writing_is_known
                   check (state in ('begun', 'verified', 'abandoned', 'lost', 'set_aside')),
    jobs       bigint not null default 0,
    checksum   bigint not null default 0,
    files      int not null default 0,
    bytes      bigint not null default 0,
    changed_at timestamptz not null default now()
);

create unique index a_slice_is_in_one_lake_once on @schema@.writing (slice) where state in ('verified', 'lost');

comment on column @schema@.writing.lake is 'The identity of the lake, which stays its own where it is moved.';
comment on column @schema@.writing.location is 'Where the lake lay when this was written.';
