-- After the function set, in its transaction.

-- Functions that the set does not make any more: those that this transaction has not written. What tables need is theirs:
-- functions of triggers, and those that a default, a constraint or an index calls.
do $$
declare
    v_left text;
begin
    select string_agg(format('@schema@.%I(%s)', p.proname, pg_get_function_identity_arguments(p.oid)), ', ') into v_left
      from pg_proc as p
     where p.pronamespace = '@schema@'::regnamespace and p.xmin <> pg_current_xact_id()::xid
       and p.prorettype <> 'trigger'::regtype
       and not exists (select from pg_depend as d
                        where d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid
                          and d.classid = any (array['pg_attrdef'::regclass, 'pg_constraint'::regclass, 'pg_class'::regclass]));
    if v_left is not null then
        execute format('drop routine %s', v_left);
    end if;
end $$;

-- The first table partitions, where there are none yet.
do $$
begin
    if not exists (select from @schema@.slice) then
        for i in 1..4 loop
            perform @schema@.add_job_table(65536);
            perform @schema@.add_slice();
        end loop;
        perform @schema@.use_next_slice();
    end if;
end $$;

-- What is new is closed to the public, and open to those it is for.
do $$ begin perform @schema@.renew_grants(); end $$;
