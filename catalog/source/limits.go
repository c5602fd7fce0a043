package source

import "time"

// The limits on what a source may send, since it is not trusted.
const (
	maxMessage     = 16 << 20       // bytes of one JSON-RPC message, and so of a result
	maxStream      = 4 * maxMessage // bytes of one stream of events
	maxRefusal     = 64 << 10       // bytes read of a refusal over HTTP
	maxPage        = 16 << 20       // bytes of one page of workflows
	maxQuery       = 128 << 20      // bytes of all pages of one query
	maxGrown       = 32 << 20       // bytes of all its input schemas with their references written out
	maxPages       = 1000           // per query
	maxEmptyPages  = 20             // pages without anything new, per query
	maxCursor      = 64 << 10       // bytes
	maxWorkflows   = 10_000         // per source
	maxSkipped     = 100            // reasons kept per source; further ones are counted
	maxLogged      = 20             // log lines about the workflows of one query
	maxID          = 1024           // bytes
	maxName        = 256            // characters
	maxDescription = 8000           // characters; longer ones are cut
	maxField       = 256            // characters of a category and a version
	maxMetadata    = 64 << 10       // bytes; larger ones are left out
	maxSchema      = 256 << 10      // bytes
	maxDepth       = 64             // nesting of a schema
	maxAnswer      = 200            // nesting of a tool's result; deeper ones become text
	maxErrorText   = 8000           // characters of a source's error
	maxMessageText = 2000           // characters of a progress message
	maxProgress    = 64             // notifications that wait for a slow receiver; further ones are dropped
)

// Time limits.
const (
	startTimeout  = time.Minute      // until a command has started and initialized
	dialTimeout   = 15 * time.Second // until a URL has initialized
	queryTimeout  = time.Minute      // for one query, all pages
	probeInterval = 15 * time.Second // between checks that a silent URL still answers
	probeTimeout  = 10 * time.Second
	drainTime     = time.Second            // for the end of the stream after an answer
	closeTimeout  = time.Second            // for ending the session of a URL
	stopGrace     = 400 * time.Millisecond // from the end of a command's input to SIGTERM, and from that to SIGKILL
	settleFor     = 100 * time.Millisecond // during which a burst of list_changed is collected
	settleBetween = time.Second            // between queries caused by list_changed
	firstRetry    = 500 * time.Millisecond // the longest pause before the first retry; each is up to twice as long
	lastRetry     = 30 * time.Second
	steadyAfter   = 10 * time.Second // a connection that lasted this long was good
	queryAgain    = time.Minute      // after a failed query's retries, if there is no interval
	lookInterval  = time.Second      // between checks of the settings
)
