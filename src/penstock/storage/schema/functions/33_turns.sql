-- The number that a worker's turns bear.
--
-- Behind a transaction pooler a turn whose answer was lost may still be under way, or not even have begun. So each turn
-- locks the number of its worker's turns, and who finds out what became of one changes it first. So does who begins to act
-- for a worker that another has acted for, whose session it neither knows nor may end: it serves others too.

-- Locks the number for this transaction; refused (40001) where it is another by now. Locks: the row, shared.
create or replace function @schema@.lock_turn(p_worker bigint, p_number bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from @schema@.turn where worker_id = p_worker and number = p_number for share;
    if not found then
        raise exception using errcode = '40001',
            message = format('this turn of worker %s was given up: its answer was taken for lost', p_worker);
    end if;
end $$;

-- Gives a worker's turns another number, which is returned. Waits a moment for one that is under way (55P03).
create or replace function @schema@.renew_turns(p_worker bigint) returns bigint
language plpgsql set lock_timeout = '1s' set search_path = pg_catalog, pg_temp as $$
declare
    v_number bigint;
begin
    insert into @schema@.turn as t (worker_id, number) values (p_worker, 1)
    on conflict (worker_id) do update set number = t.number + 1 returning number into v_number;
    return v_number;
end $$;
