-- Where the log of a stream begins once rows of it were deleted: what had been learned by then. The event `deleted` of
-- the log, which comes next, has its SHA-256. A stream that was deleted leaves its number, with the name '#' and that.
CREATE TABLE bases (
    stream BIGINT NOT NULL PRIMARY KEY,
    round BIGINT NOT NULL,
    arrival BIGINT NOT NULL,
    content BYTEA NOT NULL
);
