-- What package postgres itself keeps. Each table has the rows of all projects of the schema; scope is
-- scopes.id. The board has the names projects, sessions and requests: see 0002_board.sql.

CREATE TABLE scopes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    remote text NOT NULL,      -- of the repository, normalized; '' means unknown
    root_commit text NOT NULL, -- likewise
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE members (
    id text PRIMARY KEY, -- of a process
    scope bigint NOT NULL REFERENCES scopes,
    term bigint NOT NULL,
    expires timestamptz NOT NULL, -- the lease, by the clock of the database
    reported boolean NOT NULL,    -- the feed of changes has its end, or it has left
    machine text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    root text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX members_scope ON members (scope) WHERE NOT reported;
CREATE INDEX members_since ON members (since); -- to forget the oldest; renewals do not change it

-- The token of the last transaction that each process committed under the lock of its project.
CREATE TABLE commits (
    member text PRIMARY KEY REFERENCES members ON DELETE CASCADE,
    token text NOT NULL
);

-- A row without a body is no session yet: version 0 has notes about one, a higher version keeps a
-- delayed statement from creating one.
CREATE TABLE session_records (
    scope bigint NOT NULL REFERENCES scopes,
    id text NOT NULL,
    owner text NOT NULL, -- members.id; '' means nobody
    term bigint NOT NULL, -- of the owner; 0 means nobody
    version bigint NOT NULL,
    transition text NOT NULL, -- the id of the write that made this version
    caller text,              -- whose active session it is; '' or NULL means none
    newest bigint,            -- noted by NoteNewest
    body text,
    request text,             -- the key of request_ids that has created it
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scope, id)
) WITH (fillfactor = 60); -- room for new versions: no index has a column that most writes change
CREATE INDEX session_records_caller ON session_records (scope, caller) WHERE caller <> '';
CREATE UNIQUE INDEX session_records_request ON session_records (scope, request) WHERE request IS NOT NULL;
CREATE INDEX session_records_owner ON session_records (owner) WHERE owner <> '';

CREATE TABLE definitions (
    scope bigint NOT NULL REFERENCES scopes,
    hash text NOT NULL,
    data bytea NOT NULL,
    put_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scope, hash)
);

CREATE TABLE request_ids (
    scope bigint NOT NULL REFERENCES scopes,
    key text NOT NULL,
    session text NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scope, key, session)
);

CREATE TABLE changes (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope bigint NOT NULL REFERENCES scopes,
    kind text NOT NULL,
    id text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX changes_scope ON changes (scope, position);
