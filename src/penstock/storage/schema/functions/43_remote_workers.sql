-- Remote workers: servers act for them, and each call may come to another server. So what a poll did is kept with what it
-- did it to, in one transaction: the number of the poll, which of its ends were not taken, which leases it was given.
--
-- One request at a time may act for a worker, the one whose random number stands in its row. Every turn locks that row first
-- and fails where another stands there (PS011), or where the worker is gone (PS010). So a turn whose answer was lost is kept
-- from being committed by putting another number there, and a request whose poll was begun again does nothing more.

-- Locks a remote worker for a request; its row of `worker`. Locks: its row.
create or replace function @schema@.lock_remote(p_remote bigint, p_number bigint, p_request bigint) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_worker  bigint;
    v_number  bigint;
    v_request bigint;
begin
    select worker_id, number, request into v_worker, v_number, v_request
      from @schema@.remote_worker where id = p_remote for update;
    if v_worker is null or not exists (select from @schema@.worker where id = v_worker) then
        raise exception using errcode = 'PS010', message = format('remote worker %s is gone', p_remote);
    elsif v_number <> p_number or v_request <> p_request then
        raise exception using errcode = 'PS011', message = format('another request acts for remote worker %s', p_remote);
    end if;
    return v_worker;
end $$;

-- Hands back what a worker holds under these leases, as if none of it had started. Locks: the leases by number.
create or replace function @schema@.release_leases(p_worker bigint, p_leases bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_ends   json;
    v_queues int[];
begin
    perform from @schema@.lease where id = any (p_leases) and worker_id = p_worker order by id for update;
    select json_agg(json_build_object('lease', l.id, 'token', l.token, 'range', l.range, 'position', m,
                                      'end', 'release', 'due_in', 0)),
           array_agg(distinct p.queue_id)
      into v_ends, v_queues
      from @schema@.lease as l join @schema@.partition as p on p.id = l.partition_id
     cross join lateral unnest(@schema@.positions(l.low, l.high, l.members)) as m
     where l.id = any (p_leases) and l.worker_id = p_worker;
    if v_ends is not null then
        perform @schema@.settle_ended_if_leased(p_worker, (select name from @schema@.worker where id = p_worker), v_ends);
        perform @schema@.wake(q) from unnest(v_queues) as q;
    end if;
end $$;

-- The leases that a poll was given, as far as the worker may still hold them.
create or replace function @schema@.leases_claimed(p_claimed json) returns bigint[]
language sql immutable
return array(select (value ->> 0)::bigint from json_array_elements(p_claimed));

-- Begins a poll, in the transaction that settles its ends: it takes the place of the request and the number that were seen.
-- Its ends are told by lease: its token and range, and a member bitmap of the jobs. So many of them (p_lost) were seen not to
-- be held; where it is another number by now it fails (PS011), for whoever chose by what was seen chose wrongly. That the
-- worker calls again is the proof that it got the jobs it was given by the poll before: their leases count as started from
-- here on. Where it is known that the poll before was answered without this database (p_is_untold), they are handed back
-- instead. How many jobs it ends, and how many of these failed, is counted for the minute. Locks: the worker's row, its leases by
-- number.
create or replace function @schema@.open_poll(
    p_remote bigint, p_seen_number bigint, p_seen_request bigint, p_number bigint, p_request bigint, p_leases bigint[],
    p_tokens bigint[], p_ranges bigint[], p_members bit(1024)[], p_lost int, p_ended int, p_failed int, p_without json,
    p_is_untold boolean) returns void
language plpgsql set enable_seqscan = off set jit = off set search_path = pg_catalog, pg_temp as $$
declare
    v_worker bigint := @schema@.lock_remote(p_remote, p_seen_number, p_seen_request);
    v_leases bigint[];
    v_lost   json;
    v_count  int;
    v_minute timestamptz := date_trunc('minute', now());
begin
    select leases into v_leases from @schema@.remote_worker where id = p_remote;
    if p_is_untold then
        perform @schema@.release_leases(v_worker, (select @schema@.leases_claimed(claimed) from @schema@.remote_worker where id = p_remote));
    end if;
    perform from @schema@.lease where id = any (p_leases) and worker_id = v_worker order by id for update;
    with given as (
        select g.lease, g.token, g.range, g.place,
               g.chosen & ~coalesce(l.members, @schema@.span(l.low, l.high), repeat('0', 1024)::bit(1024)) as lost
          from unnest(p_leases, p_tokens, p_ranges, p_members) with ordinality as g(lease, token, range, chosen, place)
          left join lateral (
               select low, high, members from @schema@.lease
                where id = g.lease and worker_id = v_worker and token = g.token and range = g.range limit 1) as l on true
    )
    select coalesce(json_agg(json_build_array(g.range * 1024 + m, g.lease, g.token) order by g.place, m), '[]'), count(*)
      into v_lost, v_count
      from given as g cross join lateral unnest(@schema@.positions(0::smallint, 1024::smallint, g.lost)) as m;
    if v_count <> p_lost then
        raise exception using errcode = 'PS011', message = format('leases of remote worker %s were taken meanwhile', p_remote);
    end if;
    -- Those that end with this poll are over anyway.
    update @schema@.lease as l set is_ahead = false
     where l.id = any (v_leases) and l.worker_id = v_worker and l.is_ahead
       and not exists (
           select from unnest(p_leases, p_tokens, p_members) as g(lease, token, chosen)
            where g.lease = l.id and g.token = l.token and coalesce(l.members, @schema@.span(l.low, l.high)) & ~g.chosen = repeat('0', 1024)::bit(1024));
    delete from @schema@.taken_away where remote_id = p_remote and told_in < p_number;
    update @schema@.remote_worker
       set number = p_number, request = p_request, is_done = false, lost = v_lost, claimed = '[]', taken_away = '[]',
           without = p_without,
           counted_in = v_minute,
           ended_now = p_ended + case when counted_in = v_minute then ended_now else 0 end,
           failed_now = p_failed + case when counted_in = v_minute then failed_now else 0 end,
           ended_before = case counted_in when v_minute then ended_before
                                          when v_minute - interval '1 minute' then ended_now else 0 end,
           failed_before = case counted_in when v_minute then failed_before
                                           when v_minute - interval '1 minute' then failed_now else 0 end,
           ends = (select coalesce(sum(@schema@.members_count(0::smallint, 1024::smallint, m)), 0) from unnest(p_members) as m),
           leases = array(select l.id from unnest(v_leases) as k(id)
                           cross join lateral (select id from @schema@.lease where id = k.id and worker_id = v_worker limit 1) as l)
     where id = p_remote;
end $$;

-- Ends a poll: what it says is final, and so is which jobs it tells of that were taken away. The caller has locked its row.
create or replace function @schema@.finish_poll(p_remote bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    with told as (
        update @schema@.taken_away as t set told_in = r.number from @schema@.remote_worker as r
         where r.id = p_remote and t.remote_id = p_remote and t.told_in is null
        returning t.job_id, t.lease_id, t.token
    )
    update @schema@.remote_worker
       set is_done = true,
           taken_away = (select coalesce(json_agg(json_build_array(job_id, lease_id, token)), '[]') from told)
     where id = p_remote and not is_done;
end $$;

-- Keeps in mind what a poll was given. Nothing of it counts as started before the worker has called again. The caller has
-- locked its row.
create or replace function @schema@.note_given(p_remote bigint, p_given @schema@.claimed[], p_token bigint, p_is_last boolean)
returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_leases bigint[] := array(select id from unnest(p_given) where id is not null);
begin
    if v_leases <> '{}' then
        update @schema@.lease set is_ahead = true where id = any (v_leases) and not is_ahead;
        update @schema@.remote_worker
           set leases = leases || v_leases,
               claimed = (select json_agg(json_build_array(g.id, p_token, g.partition_id, p.queue_id, g.range, g.low, g.high,
                                                           g.members::text, g.attempt, g.task))
                            from unnest(p_given) as g join @schema@.partition as p on p.id = g.partition_id)
         where id = p_remote;
    end if;
    if p_is_last or v_leases <> '{}' then
        perform @schema@.finish_poll(p_remote);
    end if;
end $$;

-- A claim for a poll: see @schema@.claim. The poll is over with it where anything was claimed, or it is the last that is tried.
-- Locks: the worker's row, then as a claim.
create or replace function @schema@.claim_for_remote(
    p_remote bigint, p_number bigint, p_request bigint, p_is_last boolean, p_token bigint, p_firsts int[], p_lasts int[],
    p_slots int, p_has_suspect boolean, p_freed int[], p_started int[], p_starts bigint[])
returns setof @schema@.claimed
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_worker bigint := @schema@.lock_remote(p_remote, p_number, p_request);
    v_given  @schema@.claimed[];
begin
    v_given := array(
        select c from @schema@.claim(v_worker, p_token, p_firsts, p_lasts, p_slots, 0, p_has_suspect, p_freed, null, null,
                                     p_started, p_starts) as c);
    perform @schema@.note_given(p_remote, v_given, p_token, p_is_last);
    return query
    select id, partition_id, priority, pos, range, low, high, members, attempt, rescues, is_ahead, ready_at, task, batch
      from unnest(v_given);
end $$;

-- Leases for a poll what an owner chose: see @schema@.lease_chosen. Locks: the worker's row, then as that.
create or replace function @schema@.lease_chosen_for_remote(
    p_remote bigint, p_number bigint, p_request bigint, p_is_last boolean, p_owner bigint, p_token bigint, p_server text,
    p_partitions int[], p_owner_epochs bigint[], p_counts int[], p_ranges bigint[], p_members bit(1024)[], p_aheads boolean[],
    p_batches bigint[])
returns setof @schema@.claimed
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_worker bigint := @schema@.lock_remote(p_remote, p_number, p_request);
    v_given  @schema@.claimed[];
begin
    v_given := array(
        select c from @schema@.lease_chosen(p_owner, v_worker, p_token, p_server, p_partitions, p_owner_epochs, p_counts,
                                            p_ranges, p_members, p_aheads, p_batches) as c);
    perform @schema@.note_given(p_remote, v_given, p_token, p_is_last);
    return query
    select id, partition_id, priority, pos, range, low, high, members, attempt, rescues, is_ahead, ready_at, task, batch
      from unnest(v_given);
end $$;

-- Lets a poll end with what it has. Locks: the worker's row.
create or replace function @schema@.end_poll(p_remote bigint, p_number bigint, p_request bigint, p_without json) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform @schema@.lock_remote(p_remote, p_number, p_request);
    perform @schema@.finish_poll(p_remote);
    update @schema@.remote_worker set without = p_without where id = p_remote and without::text <> p_without::text;
end $$;

-- Puts a request in the place of the one that acts for a worker; of one of p_instead only, where these are given. What was
-- sent for that one and is not committed yet never is. False, and nothing is done, where another acts for it, or another poll was begun.
-- Locks: the worker's row.
create or replace function @schema@.take_over_poll(
    p_remote bigint, p_number bigint, p_request bigint, p_instead bigint[] default null) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from @schema@.remote_worker where id = p_remote for update;
    update @schema@.remote_worker set request = p_request
     where id = p_remote and (p_number is null or number = p_number)
       and (p_instead is null or request = p_request or request = any (p_instead));
    return found;
end $$;

-- Hands back what a poll was given that was never answered; whoever begins it again is given something else. Nothing, where
-- another request acts for the worker by now. Locks: the worker's row, its leases by number.
create or replace function @schema@.hand_back_poll(p_remote bigint, p_number bigint, p_request bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_worker  bigint;
    v_claimed json;
begin
    select worker_id, claimed into v_worker, v_claimed from @schema@.remote_worker
     where id = p_remote and number = p_number and request = p_request for update;
    if v_worker is not null then
        perform @schema@.release_leases(v_worker, @schema@.leases_claimed(v_claimed));
        update @schema@.taken_away set told_in = null where remote_id = p_remote and told_in = p_number;
        update @schema@.remote_worker set claimed = '[]', taken_away = '[]', is_done = false where id = p_remote;
    end if;
end $$;

-- Lets a remote worker leave: what it holds is handed back. Locks: its row, its leases by number.
create or replace function @schema@.leave_remote(p_remote bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_worker bigint;
    v_leases bigint[];
begin
    select worker_id, leases into v_worker, v_leases from @schema@.remote_worker where id = p_remote for update;
    if v_worker is not null then
        if exists (select from @schema@.worker where id = v_worker) then
            perform @schema@.release_leases(v_worker, v_leases);
            delete from @schema@.worker where id = v_worker;
        end if;
        delete from @schema@.taken_away where remote_id = p_remote;
        delete from @schema@.remote_worker where id = p_remote;
    end if;
end $$;

-- Takes jobs away from a remote worker, ends as @schema@.settle_ended_if_leased takes them, and notes that it is to hear of those
-- that it held; how many these were. Locks: the leases by number.
create or replace function @schema@.take_away(p_remote bigint, p_worker bigint, p_name text, p_ends json) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count int;
begin
    with not_held as materialized (
        select lease_id, position from @schema@.settle_ended_if_leased(p_worker, p_name, p_ends)
    ), taken as (
        insert into @schema@.taken_away (remote_id, lease_id, token, job_id)
        select p_remote, g.lease, g.token, g.range * 1024 + g.position
          from json_to_recordset(p_ends) as g(lease bigint, token bigint, range bigint, position smallint)
         where (g.lease, g.position) not in (select lease_id, position from not_held)
        on conflict do nothing
        returning 1
    )
    select count(*) into v_count from taken;
    return v_count;
end $$;
