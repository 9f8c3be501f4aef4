-- What the version that was processed last asked for, to compare the next one
-- with: its capabilities, its expiry in microseconds since 1970 (NULL: none), and
-- the version that both are of, as uid/generation. Where that is another one than
-- the row has seen, or none, nothing is known of what it asked for.
ALTER TABLE authority
  ADD COLUMN seen_asked    bigint NOT NULL DEFAULT 0,
  ADD COLUMN seen_until    bigint,
  ADD COLUMN seen_asked_of text COLLATE "C" NOT NULL DEFAULT '';
