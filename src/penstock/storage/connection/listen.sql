-- name: listen
-- Hear what is said on a channel, until the session ends.
listen {channel}

-- name: unlisten
-- Hear it no more.
unlisten {channel}

-- name: notify
-- Wake whoever listens on a channel.
select pg_notify(%(channel)s, '')
