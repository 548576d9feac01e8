-- name: catalogue_since
-- What changed in the catalogue after a version. See @schema@.catalogue_since.
select @schema@.catalogue_since(%(version)s)

-- name: take_catalogue
-- See @schema@.take_catalogue. Locks: the catalogue, then the rows that change.
select @schema@.take_catalogue(%(told)s::json)
