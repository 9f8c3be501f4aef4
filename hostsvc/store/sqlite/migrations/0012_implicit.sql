-- The fields that a command left out and the Host filled in, with a comma between
-- them, '' for none.
ALTER TABLE journal ADD COLUMN implicit TEXT NOT NULL DEFAULT '';
