-- What plugins publish in their own name. It belongs to no workspace, is no
-- audit record, and is removed when it is old. An event's place among those of
-- the journal is behind the entry of rowid after_entry, and then by seq, which is
-- never given twice. Entries are never removed, so the journal's rowids are its
-- commit order without gaps, also after VACUUM.
CREATE TABLE emitted (
  seq             INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  after_entry     INTEGER NOT NULL,
  id              TEXT    NOT NULL,
  installation_id TEXT    NOT NULL,
  source          TEXT    NOT NULL,
  event_type      TEXT    NOT NULL,
  event           TEXT    NOT NULL,
  at              INTEGER NOT NULL
) STRICT;

CREATE INDEX emitted_order ON emitted (after_entry, seq);
