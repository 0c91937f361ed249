-- Every query of the books, by name; `?` stands for an argument, in either dialect. A round is 14 columns: those of the
-- table, and whether it was told afterwards that the model's forecast was used as it is.

-- name: streams
SELECT stream, name, config, parts, created, archived FROM streams WHERE config <> '' ORDER BY stream

-- name: last_stream
SELECT COALESCE(MAX(stream), 0) FROM streams

-- name: add_stream
INSERT INTO streams (stream, name, config, parts, created) VALUES (?, ?, ?, ?, ?)

-- name: archive_stream
UPDATE streams SET archived = ? WHERE stream = ?

-- name: change_stream
UPDATE streams SET config = ?, parts = ? WHERE stream = ?

-- name: bury_stream
UPDATE streams SET name = ?, config = '', parts = ?, archived = ? WHERE stream = ?

-- name: buried
SELECT s.stream FROM streams s WHERE s.config = '' AND (
    EXISTS (SELECT 1 FROM rounds r WHERE r.stream = s.stream)
    OR EXISTS (SELECT 1 FROM arrivals a WHERE a.stream = s.stream)
    OR EXISTS (SELECT 1 FROM pending p WHERE p.stream = s.stream)) LIMIT 1

-- name: sweep_rounds
DELETE FROM rounds WHERE stream = ? AND round <= (
    SELECT MAX(round) FROM (SELECT round FROM rounds WHERE stream = ? ORDER BY round LIMIT ?) few)

-- name: sweep_arrivals
DELETE FROM arrivals WHERE stream = ? AND arrival <= (
    SELECT MAX(arrival) FROM (SELECT arrival FROM arrivals WHERE stream = ? ORDER BY arrival LIMIT ?) few)

-- name: sweep_pending
DELETE FROM pending WHERE stream = ? AND round <= (
    SELECT MAX(round) FROM (SELECT round FROM pending WHERE stream = ? ORDER BY round LIMIT ?) few)

-- name: drop_alarms
DELETE FROM alarms WHERE stream = ?

-- name: drop_deliveries
DELETE FROM deliveries WHERE stream = ?

-- name: add_round
INSERT INTO rounds (stream, round, id, at, arrivals, model, announced, points, told, copy, used, tags, due, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_pending
INSERT INTO pending (stream, round, due) VALUES (?, ?, ?)

-- name: close_pending
DELETE FROM pending WHERE (stream, round) IN (VALUES (?, ?))

-- name: erase_round
DELETE FROM rounds WHERE (stream, round) IN (VALUES (?, ?))

-- name: erase_arrivals
DELETE FROM arrivals WHERE (stream, round) IN (VALUES (?, ?))

-- name: add_arrival
INSERT INTO arrivals (stream, arrival, kind, round, at, class, point) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: round_by_id
-- A forecast that was revised is the last one.
SELECT r.round, r.id, r.at, r.arrivals,
    COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.model),
    COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.announced),
    r.points, r.told, r.copy, r.used, r.tags, r.due, r.state,
    EXISTS (SELECT 1 FROM arrivals u WHERE u.stream = r.stream AND u.round = r.round AND u.kind = 'used')
FROM rounds r WHERE r.stream = ? AND r.id = ?

-- name: round_to_settle
SELECT r.round, r.id, r.at, r.arrivals,
    COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.model),
    COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.announced),
    r.points, r.told, r.copy, r.used, r.tags, r.due, r.state,
    EXISTS (SELECT 1 FROM arrivals u WHERE u.stream = r.stream AND u.round = r.round AND u.kind = 'used'),
    (SELECT 1 FROM pending p WHERE p.stream = r.stream AND p.round = r.round)  -- twice as fast as a join
FROM rounds r WHERE r.stream = ? AND r.id = ?

-- name: round_to_erase
SELECT r.round, r.id, r.at, r.arrivals, r.model, r.announced, r.points, r.told, r.copy, r.used, r.tags, r.due, r.state,
    EXISTS (SELECT 1 FROM arrivals u WHERE u.stream = r.stream AND u.round = r.round AND u.kind = 'used'),
    (SELECT 1 FROM pending p WHERE p.stream = r.stream AND p.round = r.round)
FROM rounds r WHERE r.stream = ? AND r.round = ?

-- name: first_rounds
SELECT round FROM (SELECT round, at FROM rounds WHERE stream = ? ORDER BY round LIMIT ?) few WHERE at < ? ORDER BY round

-- name: tags_after
SELECT round, tags FROM rounds WHERE stream = ? AND round > ? ORDER BY round LIMIT ?

-- name: arrivals_of_round
-- Every kind is at least '': without this SQLite reads all arrivals of the stream, in their order.
SELECT round, kind, at, class, point FROM arrivals WHERE stream = ? AND round = ? AND kind >= '' ORDER BY arrival

-- name: oldest_pending
SELECT r.round, r.id, r.at, r.arrivals, r.model, r.announced, r.points, r.told, r.copy, r.used, r.tags, r.due, r.state,
    EXISTS (SELECT 1 FROM arrivals u WHERE u.stream = r.stream AND u.round = r.round AND u.kind = 'used')
FROM pending p JOIN rounds r ON r.stream = p.stream AND r.round = p.round
WHERE p.stream = ? ORDER BY p.round LIMIT ?

-- name: pending_page
SELECT r.round, r.id, r.at, r.arrivals,
    COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.model),
    COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.announced),
    r.points, r.told, r.copy, r.used, r.tags, r.due, r.state,
    EXISTS (SELECT 1 FROM arrivals u WHERE u.stream = r.stream AND u.round = r.round AND u.kind = 'used')
FROM pending p JOIN rounds r ON r.stream = p.stream AND r.round = p.round
WHERE p.stream = ? AND p.round > ? ORDER BY p.round LIMIT ?

-- name: overdue_page
SELECT r.round, r.id, r.at, r.arrivals,
    COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.model),
    COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.announced),
    r.points, r.told, r.copy, r.used, r.tags, r.due, r.state,
    EXISTS (SELECT 1 FROM arrivals u WHERE u.stream = r.stream AND u.round = r.round AND u.kind = 'used')
FROM pending p JOIN rounds r ON r.stream = p.stream AND r.round = p.round
WHERE p.stream = ? AND p.round > ? AND p.due < ? ORDER BY p.round LIMIT ?

-- name: count_overdue
SELECT COUNT(*) FROM pending WHERE stream = ? AND due < ?

-- name: rounds_after
SELECT r.round, r.id, r.at, r.arrivals, r.model, r.announced, r.points, r.told, r.copy, r.used, r.tags, r.due, r.state,
    0
FROM rounds r WHERE r.stream = ? AND r.round > ? ORDER BY r.round LIMIT ?

-- name: arrivals_after
SELECT a.arrival, a.kind, a.at, a.class, a.point,
    r.round, r.id, r.at, r.arrivals,
    CASE WHEN a.kind = 'outcome' THEN COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.model) ELSE r.model END,
    CASE WHEN a.kind = 'outcome' THEN COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.announced) ELSE r.announced END,
    r.points, r.told, r.copy, r.used, r.tags, r.due, r.state,
    EXISTS (SELECT 1 FROM arrivals u WHERE u.stream = r.stream AND u.round = r.round AND u.kind = 'used')
FROM arrivals a LEFT JOIN rounds r ON r.stream = a.stream AND r.round = a.round
WHERE a.stream = ? AND a.arrival > ? ORDER BY a.arrival LIMIT ?

-- name: last_arrival
SELECT COALESCE(MAX(arrival), 0) FROM arrivals WHERE stream = ?

-- name: snapshot
SELECT round, arrival, content FROM snapshots WHERE stream = ?

-- name: drop_snapshot
DELETE FROM snapshots WHERE stream = ?

-- name: base
SELECT round, arrival, content FROM bases WHERE stream = ?

-- name: keep_base
INSERT INTO bases (stream, round, arrival, content) VALUES (?, ?, ?, ?)
ON CONFLICT (stream) DO UPDATE SET round = excluded.round, arrival = excluded.arrival, content = excluded.content

-- name: drop_base
DELETE FROM bases WHERE stream = ?

-- name: change_after
SELECT point FROM arrivals WHERE stream = ? AND round = 0 AND kind = 'changed' AND arrival > ? ORDER BY arrival LIMIT 1

-- name: keep_snapshot
INSERT INTO snapshots (stream, round, arrival, content) VALUES (?, ?, ?, ?)
ON CONFLICT (stream) DO UPDATE SET round = excluded.round, arrival = excluded.arrival, content = excluded.content

-- name: add_alarm
INSERT INTO alarms (stream, arrival, watched, at, body) VALUES (?, ?, ?, ?, ?)

-- name: alarms
SELECT s.name, a.watched, a.at, a.body FROM alarms a JOIN streams s ON s.stream = a.stream
WHERE substr(s.name, 1, CAST(? AS INTEGER)) = ? ORDER BY a.at DESC, a.stream, a.arrival DESC LIMIT ?

-- name: alarms_of
SELECT stream, watched, at, body FROM alarms WHERE stream = ? ORDER BY arrival DESC LIMIT ?

-- name: add_delivery
INSERT INTO deliveries (stream, arrival, watched, webhook) VALUES (?, ?, ?, ?)

-- name: close_delivery
DELETE FROM deliveries WHERE (stream, arrival, watched, webhook) IN (VALUES (?, ?, ?, ?))

-- name: next_delivery
SELECT d.stream, d.arrival, d.watched, s.name, s.created, a.at, a.body
FROM deliveries d JOIN streams s ON s.stream = d.stream
JOIN alarms a ON a.stream = d.stream AND a.arrival = d.arrival AND a.watched = d.watched
WHERE d.webhook = ? AND s.name = ? ORDER BY d.arrival, d.watched LIMIT 1

-- name: due_deliveries
SELECT DISTINCT d.webhook, s.name FROM deliveries d JOIN streams s ON s.stream = d.stream

-- name: count_deliveries
SELECT webhook, COUNT(*) FROM deliveries GROUP BY webhook ORDER BY webhook

-- name: outcomes_back
SELECT a.arrival, a.kind, a.at, a.class, a.point,
    r.round, r.id, r.at, r.arrivals,
    COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.model),
    COALESCE((SELECT v.point FROM arrivals v WHERE v.stream = r.stream AND v.arrival = (SELECT MAX(w.arrival)
        FROM arrivals w WHERE w.stream = r.stream AND w.round = r.round AND w.kind = 'revised')), r.announced),
    r.points, r.told, r.copy, r.used, r.tags, r.due, r.state,
    EXISTS (SELECT 1 FROM arrivals u WHERE u.stream = r.stream AND u.round = r.round AND u.kind = 'used')
FROM arrivals a JOIN rounds r ON r.stream = a.stream AND r.round = a.round
WHERE a.stream = ? AND a.arrival < ? AND a.at >= ? AND a.at < ? AND a.kind = 'outcome'
ORDER BY a.arrival DESC LIMIT ?

-- name: count_pending
SELECT COUNT(*) FROM pending WHERE stream = ?

-- name: count_open
SELECT COUNT(*) FROM pending p WHERE p.stream = ? AND NOT EXISTS (
    SELECT 1 FROM arrivals a WHERE a.stream = p.stream AND a.round = p.round AND a.kind IN ('outcome', 'late', 'void'))

-- name: tokens
SELECT id, name, hash, prefix, scopes, created, revoked, expires, used FROM tokens

-- name: add_token
INSERT INTO tokens (id, name, hash, prefix, scopes, created, expires) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: revoke_token
UPDATE tokens SET revoked = ? WHERE id = ?

-- name: use_token
UPDATE tokens SET used = ? WHERE id = ?

-- name: amendments
SELECT round, class, point FROM arrivals WHERE stream = ? AND kind = 'amended' ORDER BY arrival

-- name: beat
INSERT INTO beats (beat, at) VALUES (1, ?) ON CONFLICT (beat) DO UPDATE SET at = excluded.at

-- name: outcome_before_last
SELECT at FROM arrivals WHERE stream = ? AND kind = 'outcome' ORDER BY arrival DESC LIMIT 1 OFFSET ?
