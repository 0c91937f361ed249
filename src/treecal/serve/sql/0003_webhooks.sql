-- What is owed to receivers of alarms: a row is added with its alarm, and deleted once the receiver has taken it.
CREATE TABLE deliveries (
    stream BIGINT NOT NULL,
    arrival BIGINT NOT NULL,
    watched TEXT NOT NULL,
    webhook TEXT NOT NULL,
    PRIMARY KEY (stream, arrival, watched, webhook)
);
ALTER TABLE tokens ADD COLUMN expires DOUBLE PRECISION;
ALTER TABLE tokens ADD COLUMN used DOUBLE PRECISION;  -- last, to the minute
