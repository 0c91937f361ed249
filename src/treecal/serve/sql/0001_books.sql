-- The log of every stream: forecasts (rounds) and what came afterwards (arrivals). Rows of these two are added and never
-- changed. All other tables follow from them, but for the names and settings of the streams.
CREATE TABLE streams (
    stream BIGINT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    config TEXT NOT NULL,
    parts TEXT NOT NULL,  -- what the settings made of it, with all arguments: defaults may change, and the log stays
    created DOUBLE PRECISION NOT NULL,
    archived DOUBLE PRECISION
);

CREATE TABLE rounds (
    stream BIGINT NOT NULL,
    round BIGINT NOT NULL,
    id TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    arrivals BIGINT NOT NULL,  -- those of the stream that came before it
    model BYTEA,
    announced BYTEA NOT NULL,
    points BYTEA,  -- where more than one point was announced: all of them, and their weights
    told BYTEA,  -- what a copy was asked to correct, where that is not the model's forecast
    copy BIGINT,
    used BIGINT NOT NULL,
    tags TEXT NOT NULL,
    due DOUBLE PRECISION,
    state BYTEA NOT NULL,
    PRIMARY KEY (stream, round),
    UNIQUE (stream, id)
)
-- sqlite: WITHOUT ROWID
;

CREATE TABLE arrivals (
    stream BIGINT NOT NULL,
    arrival BIGINT NOT NULL,
    kind TEXT NOT NULL,  -- outcome, late, void, amended, used, reset
    round BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    class BIGINT,
    point BYTEA,
    PRIMARY KEY (stream, arrival)
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX arrivals_of_rounds ON arrivals (stream, round, kind);

CREATE TABLE pending (
    stream BIGINT NOT NULL,
    round BIGINT NOT NULL,
    due DOUBLE PRECISION,
    PRIMARY KEY (stream, round)
)
-- sqlite: WITHOUT ROWID
;
CREATE INDEX pending_by_due ON pending (stream, due);

CREATE TABLE beats (beat BIGINT NOT NULL PRIMARY KEY, at DOUBLE PRECISION NOT NULL);  -- that the books can be written

CREATE TABLE snapshots (
    stream BIGINT NOT NULL PRIMARY KEY,
    round BIGINT NOT NULL,
    arrival BIGINT NOT NULL,
    content BYTEA NOT NULL
);

CREATE TABLE alarms (
    stream BIGINT NOT NULL,
    arrival BIGINT NOT NULL,
    watched TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (stream, arrival, watched)
);
