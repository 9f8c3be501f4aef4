-- The order of all workspaces' events is (xid, version), and (xid, seq) for what
-- plugins publish: a transaction is in one workspace at most, and takes its lock
-- before it gets its xid, so that in one workspace a later commit has a greater
-- one. Whoever reads only transactions below the oldest that is open misses none.
-- Entries of before have no place in it. Each database cluster counts xids from
-- its own start, which is why a dump that was restored elsewhere has to forget
-- them (see the package's Outbox).
ALTER TABLE journal ADD COLUMN xid xid8;
ALTER TABLE journal ALTER COLUMN xid SET DEFAULT pg_current_xact_id();

CREATE INDEX journal_outbox ON journal (xid, version) WHERE event_type <> '';

-- What plugins publish in their own name. It belongs to no workspace, is no
-- audit record, and is removed when it is old.
CREATE TABLE emitted (
  seq             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  xid             xid8   NOT NULL DEFAULT pg_current_xact_id(),
  id              text COLLATE "C" NOT NULL,
  installation_id text COLLATE "C" NOT NULL,
  source          text COLLATE "C" NOT NULL,
  event_type      text COLLATE "C" NOT NULL,
  event           text COLLATE "C" NOT NULL,
  at              bigint NOT NULL
);

CREATE INDEX emitted_order ON emitted (xid, seq);
