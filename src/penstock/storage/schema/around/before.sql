-- Before the function set: the views, and those of our functions that are bound to them, are dropped, to be made anew by
-- the set. Where somebody built on them outside of the schema nothing is done: a cascade would take that with it.

do $$
declare
    v_views text;
    v_others text;
begin
    select string_agg(format('@schema@.%I', relname), ', ') into v_views
      from pg_class where relnamespace = '@schema@'::regnamespace and relkind = 'v';
    if v_views is null then
        return;
    end if;
    with recursive falling(classid, objid) as (
        select 'pg_class'::regclass::oid, oid from pg_class where relnamespace = '@schema@'::regnamespace and relkind = 'v'
        union
        select next.classid, next.objid from falling as f cross join lateral (
            select d.classid, d.objid from pg_depend as d
             where d.refclassid = f.classid and d.refobjid = f.objid and d.deptype in ('n', 'a', 'i')
            union all
            -- A view is the rule that reads from others.
            select 'pg_class'::regclass, r.ev_class from pg_rewrite as r
             where f.classid = 'pg_rewrite'::regclass and r.oid = f.objid) as next
    )
    select string_agg(pg_describe_object(classid, objid, 0), ', ') into v_others
      from falling as f
     where classid <> all (array['pg_rewrite'::regclass, 'pg_type'::regclass])
       and not exists (select from pg_class as c where f.classid = 'pg_class'::regclass and c.oid = f.objid
                          and c.relnamespace = '@schema@'::regnamespace and c.relkind = 'v')
       and not exists (select from pg_proc as p where f.classid = 'pg_proc'::regclass and p.oid = f.objid
                          and p.pronamespace = '@schema@'::regnamespace);
    if v_others is not null then
        raise exception using errcode = '2BP01', message = format('views of Penstock are used by %s', v_others);
    end if;
    execute format('drop view %s cascade', v_views);
end $$;
