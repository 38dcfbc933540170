"""The tables of a history file, and the statements that fold old rows into hours and days.

    hosts          what each host has contributed, in sum and for ever
    host_whys      why its contributions did not count, and how often
    rounds         one row a certified round, as long as rounds are kept one by one
    contributions  the members of each of these sets
    left_out       who did not count in each of these rounds, and why
    aborted        rounds that changed nothing
    decisions      what the node decided, and why
    spans          all rounds of an hour, or of a day: what is left of those above
    notes          how far the event log was read

Times are unix seconds, losses millionths of a nat. A host is a small number here: ids are 32 bytes.
"""

# Of the tables, by the very text below: another text under the same number is taken for damage. A
# file of a newer one is not ours to change.
VERSION = 1
VERSIONS_MAX = 999  # a file that says more has rotted
APPLICATION_ID = 0x64616168  # "daah" in the file's header: no other database is taken for ours

HOUR_S, DAY_S = 3600, 86_400
HOURS_KEPT_S = 366 * DAY_S
# Each hour no more than this becomes coarser by its age: so what a clock that is years ahead spoils
# in an hour would have gone in a day, or in a week, anyway.
OLD_AT_ONCE, OLD_PART = 64, 24  # rows, or one of so many: the larger of the two
HOURS_AT_ONCE_S = 7 * DAY_S
# A round of four seconds for four weeks is 600,000. Beyond these the oldest go early.
ROUNDS_MAX = 200_000
CONTRIBUTIONS_MAX = 1_000_000
LEFT_OUT_MAX = 200_000
DECISIONS_MAX = 200_000
HOSTS_MAX = 20_000  # those that came last; what the others have contributed is one row
WHYS_MAX = 32  # of one host; the words are ours, and there are fewer
OTHER_WHY = "other"
EVERYBODY_ELSE = b""  # the id of the row of hosts that are told of in sum

TABLES = f"""
CREATE TABLE hosts (
    host INTEGER PRIMARY KEY, node_id BLOB NOT NULL UNIQUE,
    rounds INTEGER NOT NULL DEFAULT 0, void INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0, steps INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    first_height INTEGER, last_height INTEGER, first_s REAL, last_s REAL);
CREATE TABLE host_whys (
    host INTEGER NOT NULL, why TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (host, why)) WITHOUT ROWID;
CREATE TABLE rounds (
    height INTEGER PRIMARY KEY, round INTEGER NOT NULL, vertex_id BLOB NOT NULL,
    signers INTEGER NOT NULL, tokens INTEGER NOT NULL,
    members INTEGER NOT NULL, void INTEGER NOT NULL,
    ended_s REAL, loss INTEGER, wall_ms INTEGER, sent_bytes INTEGER);
CREATE INDEX rounds_by_end ON rounds (ended_s);
CREATE TABLE contributions (
    height INTEGER NOT NULL, host INTEGER NOT NULL, tokens INTEGER NOT NULL,
    steps INTEGER NOT NULL, bytes INTEGER, counts INTEGER NOT NULL,
    PRIMARY KEY (height, host)) WITHOUT ROWID;
CREATE TABLE left_out (
    round INTEGER NOT NULL, host INTEGER NOT NULL, why TEXT NOT NULL,
    PRIMARY KEY (round, host)) WITHOUT ROWID;
CREATE TABLE aborted (round INTEGER PRIMARY KEY, at_s REAL NOT NULL);
CREATE TABLE decisions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL,
    decision TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE spans (
    seconds INTEGER NOT NULL, from_s INTEGER NOT NULL,
    rounds INTEGER NOT NULL, aborted INTEGER NOT NULL, tokens INTEGER NOT NULL,
    members INTEGER NOT NULL, void INTEGER NOT NULL, wall_ms INTEGER NOT NULL,
    sent_bytes INTEGER NOT NULL, height INTEGER NOT NULL, loss INTEGER,
    PRIMARY KEY (seconds, from_s)) WITHOUT ROWID;
CREATE TABLE notes (key TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
INSERT INTO notes VALUES ('events_until_s', 0.0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""

ADD_CONTRIBUTED = """
UPDATE hosts SET
    rounds = rounds + :counts, void = void + 1 - :counts, tokens = tokens + :tokens * :counts,
    steps = steps + :steps * :counts, bytes = bytes + coalesce(:bytes, 0),
    first_height = coalesce(min(first_height, :height), :height),
    last_height = coalesce(max(last_height, :height), :height),
    first_s = coalesce(min(first_s, :ended_s), first_s, :ended_s),
    last_s = coalesce(max(last_s, :ended_s), last_s, :ended_s)
WHERE host = :host
"""

# A span takes in others of the same time; of losses the highest round's stays.
_TAKE_IN = """
ON CONFLICT (seconds, from_s) DO UPDATE SET
    rounds = rounds + excluded.rounds, aborted = aborted + excluded.aborted,
    tokens = tokens + excluded.tokens, members = members + excluded.members,
    void = void + excluded.void, wall_ms = wall_ms + excluded.wall_ms,
    sent_bytes = sent_bytes + excluded.sent_bytes,
    loss = CASE WHEN excluded.height >= height THEN excluded.loss ELSE loss END,
    height = max(height, excluded.height)
"""

# Beside max() SQLite takes the other columns from the row that has it.
FOLD_ROUNDS = f"""
INSERT INTO spans
SELECT {HOUR_S}, coalesce(CAST(ended_s AS INTEGER) / {HOUR_S} * {HOUR_S}, 0) AS hour, count(*), 0,
    sum(tokens), sum(members), sum(void), sum(coalesce(wall_ms, 0)), sum(coalesce(sent_bytes, 0)),
    max(height), loss
FROM rounds WHERE height <= :height GROUP BY hour
{_TAKE_IN}
"""
FOLD_ABORTED = f"""
INSERT INTO spans
SELECT {HOUR_S}, CAST(at_s AS INTEGER) / {HOUR_S} * {HOUR_S} AS hour, 0, count(*),
    0, 0, 0, 0, 0, 0, NULL
FROM aborted WHERE at_s < :at_s GROUP BY hour
{_TAKE_IN}
"""
FOLD_HOURS = f"""
INSERT INTO spans
SELECT {DAY_S}, from_s / {DAY_S} * {DAY_S} AS day, sum(rounds), sum(aborted), sum(tokens),
    sum(members), sum(void), sum(wall_ms), sum(sent_bytes), max(height), loss
FROM spans WHERE seconds = {HOUR_S} AND from_s < :from_s GROUP BY day
{_TAKE_IN}
"""

# Heights before and behind each gap between rounds; of the newest round there is none behind.
GAPS = """
SELECT height, (SELECT min(height) FROM rounds WHERE height > low.height) AS behind
FROM rounds AS low
WHERE NOT EXISTS (SELECT 1 FROM rounds WHERE height = low.height + 1) AND behind IS NOT NULL
ORDER BY height LIMIT :count
"""

# The highest height that goes: too old, or more than there may be. A round is old if no round below
# it is young: one that ended while the clock stood at 1970 takes none of last week with it.
LAST_TO_FOLD = f"""
SELECT max(
    coalesce((SELECT max(height) FROM rounds WHERE ended_s < :at_s
        AND height < coalesce(
            (SELECT min(height) FROM rounds WHERE ended_s BETWEEN :at_s AND :now_s), height + 1)
        AND height <= (SELECT min(height) + max({OLD_AT_ONCE}, count(*) / {OLD_PART}) FROM rounds)
    ), 0),
    coalesce((SELECT height FROM rounds ORDER BY height DESC LIMIT 1 OFFSET {ROUNDS_MAX}), 0),
    coalesce((SELECT height FROM contributions ORDER BY height DESC, host DESC
              LIMIT 1 OFFSET {CONTRIBUTIONS_MAX}), 0))
"""

OLD_DECISIONS = f"""
DELETE FROM decisions WHERE number <= :over OR at_s < :at_s AND number <=
    (SELECT min(number) + max({OLD_AT_ONCE}, count(*) / {OLD_PART}) FROM decisions)
"""

# Whoever came last stays by name.
FORGOTTEN_HOSTS = f"""
SELECT host FROM hosts WHERE node_id <> x''
ORDER BY coalesce(last_height, 0) DESC, host DESC LIMIT -1 OFFSET {HOSTS_MAX}
"""
ADD_FORGOTTEN = """
UPDATE hosts SET
    rounds = rounds + :rounds, void = void + :void, tokens = tokens + :tokens,
    steps = steps + :steps, bytes = bytes + :bytes,
    first_height = coalesce(min(first_height, :first_height), first_height, :first_height),
    last_height = coalesce(max(last_height, :last_height), last_height, :last_height),
    first_s = coalesce(min(first_s, :first_s), first_s, :first_s),
    last_s = coalesce(max(last_s, :last_s), last_s, :last_s)
WHERE node_id = x''
"""
ADD_WHY = """
INSERT INTO host_whys VALUES (:host, :why, :count)
ON CONFLICT (host, why) DO UPDATE SET count = count + excluded.count
"""
