package postgres

import "deepwork/session/store/sqlstore"

// Transactions commit in another order than that of their ids and of the positions of their rows. So the
// position of a follower is a snapshot: it has read the rows of all transactions that are finished in it.
// New are the rows of transactions that are finished in the current snapshot and were not in that one,
// whatever their ids. So writers do not wait for each other, and a transaction that lasts long, in whatever
// database of the server, does not delay the changes of others, as it would if followers read up to the
// oldest transaction in progress.
//
// scopes.pruned is the highest id of a transaction whose rows were removed. A follower may have missed
// them if a transaction with an id up to that one has finished since its snapshot. Rows and ids that are
// above those of the server came with a dump from another one, and are ignored until it reaches them.
//
// A position is unknown once the server was started again or replaced by its standby, since it may then
// give the same ids to other transactions. There is one gap: if a process of the server crashes, it goes
// on without a new start, and may give ids again that it had not written to disk. A follower that does not
// look before they are used up misses those changes. Followers must read from the primary: the snapshots
// of a standby do not list all transactions in progress.
const (
	snapshots = `WITH x AS MATERIALIZED (SELECT feed_snapshot(?1) AS seen, pg_current_snapshot() AS latest) `
	newRows   = ` FROM changes, x WHERE xid >= pg_snapshot_xmin(seen) AND NOT pg_visible_in_snapshot(xid, seen) AND pg_visible_in_snapshot(xid, latest)`
)

var feed = sqlstore.Feed{
	State: snapshots + `SELECT feed_position(),
			seen IS NOT NULL AND NOT EXISTS (SELECT FROM scopes WHERE id = scope() AND pruned < pg_snapshot_xmax(latest) AND (pruned >= pg_snapshot_xmax(seen)
				OR EXISTS (SELECT FROM pg_snapshot_xip(seen) AS running WHERE running <= pruned AND pg_visible_in_snapshot(running, latest)))),
			EXISTS (SELECT` + newRows + `)
		FROM x`,
	After: snapshots + `SELECT kind, id` + newRows + ` ORDER BY xid, position`,
	// One process at a time; another one does not wait.
	Prune: `WITH mine AS MATERIALIZED (SELECT FROM scopes WHERE id = scope() FOR NO KEY UPDATE SKIP LOCKED),
			gone AS (DELETE FROM changes WHERE EXISTS (SELECT FROM mine)
				AND (at < ?1 OR (xid, position) <= (SELECT xid, position FROM changes ORDER BY xid DESC, position DESC LIMIT 1 OFFSET ?2)) RETURNING xid)
		UPDATE scopes SET pruned = greatest(CASE WHEN pruned < pg_snapshot_xmax(pg_current_snapshot()) THEN pruned END,
				(SELECT xid FROM gone WHERE xid < pg_snapshot_xmax(pg_current_snapshot()) ORDER BY xid DESC LIMIT 1))
			WHERE id = scope() AND EXISTS (SELECT FROM gone)`,
}
