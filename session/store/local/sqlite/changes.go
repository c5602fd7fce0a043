package sqlite

import "deepwork/session/store/sqlstore"

// feed has the statements for the feed of changes. Writers take turns, and positions have no gaps: they
// are in the order of the commits.
func feed(d *DB) sqlstore.Feed {
	return sqlstore.Feed{
		State: `SELECT CAST(last AS TEXT),
				?1 = CAST(CAST(?1 AS INTEGER) AS TEXT) AND CAST(?1 AS INTEGER) BETWEEN first - 1 AND last,
				CAST(?1 AS INTEGER) < last
			FROM (SELECT coalesce((SELECT min(position) FROM changes), 1) AS first, coalesce((SELECT max(position) FROM changes), 0) AS last)`,
		After: `SELECT kind, id FROM changes WHERE position > CAST(?1 AS INTEGER) ORDER BY position`,
		// The newest one stays, since it says which position is the last. What is older than one that goes
		// goes, too, whatever its time: the clock may have been set.
		Prune: `DELETE FROM changes WHERE position < (SELECT max(position) FROM changes)
			AND position <= (SELECT max(coalesce((SELECT max(position) FROM changes WHERE at < ?1), 0), (SELECT max(position) FROM changes) - ?2))`,
		Version: d.Version,
	}
}
