-- How far each import has come. byte_offset and line are where the next document
-- begins; source is the digest of what is imported.
CREATE TABLE imports (
  id          text COLLATE "C" NOT NULL PRIMARY KEY,
  source      text COLLATE "C" NOT NULL,
  byte_offset bigint NOT NULL,
  line        bigint NOT NULL,
  documents   bigint NOT NULL,
  complete    bigint NOT NULL,
  updated_at  bigint NOT NULL
);
