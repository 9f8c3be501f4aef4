-- What the lease has to say about a row: the store's beat when the row was
-- fenced, -1 for rows of before, and the store's clock when it was read for that
-- fence, in microseconds since 1970. lease_beat is the beat at which the round
-- began that the lease is of: it has compared what was fenced at a lower one.
ALTER TABLE authority ADD COLUMN fenced_beat INTEGER NOT NULL DEFAULT -1;
ALTER TABLE authority ADD COLUMN read_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE store ADD COLUMN lease_beat INTEGER NOT NULL DEFAULT 0;
