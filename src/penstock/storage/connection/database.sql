-- name: set_session
-- Nobody who may create in a schema of the path can put an operator or a function of his own before PostgreSQL's. And no
-- statement is compiled: estimates of ours are far too high, and compiling them takes longer than they do. And the server
-- looks, so often, whether the client of a running statement is there: one whose client was cut off while it waits for a
-- lock would go on waiting, and then hold the lock. (Where its system has no means to, anything but 0 is refused.) A
-- machine that is gone says nothing at all: its sessions end after a minute, unless they are set to end sooner.
select set_config('search_path', 'pg_catalog, pg_temp', false), set_config('jit', 'off', false),
       set_config('client_connection_check_interval',
                  coalesce(nullif(current_setting('client_connection_check_interval'), '0'), %(notice)s), false),
       set_config('tcp_keepalives_idle', least(nullif(current_setting('tcp_keepalives_idle')::int, 0), 30)::text, false),
       set_config('tcp_keepalives_interval',
                  least(nullif(current_setting('tcp_keepalives_interval')::int, 0), 10)::text, false),
       set_config('tcp_keepalives_count', least(nullif(current_setting('tcp_keepalives_count')::int, 0), 3)::text, false)

-- name: durability_settings
-- What these settings are in this session.
select name, setting from pg_settings where name = any (%(names)s::text[])

-- name: read_session
-- The server process that answers and since when, and the isolation level of transactions that say none.
select pg_backend_pid(), current_setting('default_transaction_isolation'),
       (select backend_start from pg_stat_get_activity(pg_backend_pid()))
