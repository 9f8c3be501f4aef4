-- The number of the root that names this head, so that it can be named again
-- before that root is removed.
ALTER TABLE rooted ADD COLUMN root INTEGER NOT NULL DEFAULT 0;

-- Up to which record a chain has been cut, while any of it may be left: a chain
-- of receipts, or the roots. What proves the cuts is the chain "cuts/".
CREATE TABLE cuts (
  chain    TEXT    NOT NULL PRIMARY KEY,
  position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
