-- Tokens, by the SHA-256 of their texts. A revoked one stays: a server that ever had a token is never open again.
CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    hash TEXT NOT NULL,
    prefix TEXT NOT NULL,
    scopes TEXT NOT NULL,  -- separated by spaces
    created DOUBLE PRECISION NOT NULL,
    revoked DOUBLE PRECISION
);
