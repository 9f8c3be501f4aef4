-- How far each import has come. byte_offset and line are where the next document
-- begins; source is the digest of what is imported.
CREATE TABLE imports (
  id          TEXT    NOT NULL PRIMARY KEY,
  source      TEXT    NOT NULL,
  byte_offset INTEGER NOT NULL,
  line        INTEGER NOT NULL,
  documents   INTEGER NOT NULL,
  complete    INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
