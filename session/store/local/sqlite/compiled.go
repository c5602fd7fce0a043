package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"modernc.org/sqlite"
)

// keptStatements is how many compiled statements a connection keeps. The program has fewer texts; once there
// are that many, statements composed at run time are compiled each time.
const keptStatements = 500

// errLost is the error of a statement in a transaction that SQLite itself has rolled back.
var errLost = errors.New("the transaction was rolled back after an error, and nothing was changed")

// A driverConn is a connection of the driver.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
	RegisterRollbackHook(sqlite.RollbackHookFn)
}

// A phase says how far a connection is in a transaction of the writer.
type phase int

const (
	outside phase = iota // no transaction of the writer is open
	inside
	lost // SQLite has ended it: a statement is refused, as it would be a transaction of its own
)

// A compiled is a connection that compiles each statement once. Compiling most of this program's statements
// takes longer than running them.
type compiled struct {
	driverConn
	number int64                  // number of the connection in this process
	free   map[string]driver.Stmt // by text; without those that run, or whose rows are being read
	phase  phase
}

var made atomic.Int64 // number of connections

// A compiler is a connector that makes compiled connections.
type compiler struct {
	driver.Connector
	inPlace func() error
}

// connect returns a pool of at most n permanent connections, each a compiled. A connection that is made later
// opens the same file, or fails.
func (d *DB) connect(dsn string, n int, more string) *sql.DB {
	c, err := sqlite.NewConnector(dsn + pragmas + more)
	if err != nil {
		panic(err) // this package formatted the data source name
	}

	info := d.info
	db := sql.OpenDB(compiler{c, func() error { return inPlace(d.o.Path, info) }})
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db
}

// Connect implements driver.Connector.
func (c compiler) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.inPlace(); err != nil {
		return nil, err
	}

	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	of := &compiled{driverConn: conn.(driverConn), number: made.Add(1), free: map[string]driver.Stmt{}}
	of.RegisterRollbackHook(func() {
		if of.phase == inside {
			of.phase = lost
		}
	})
	return of, nil
}

// Close implements driver.Conn.
func (c *compiled) Close() error {
	for _, s := range c.free {
		s.Close()
	}
	c.RegisterRollbackHook(nil) // the driver would keep the hook for the next connection at this address
	return c.driverConn.Close()
}

// take returns a compiled statement that nobody else uses until it is put back.
func (c *compiled) take(ctx context.Context, query string) (driver.Stmt, error) {
	if c.phase == lost {
		return nil, errLost
	}

	if s := c.free[query]; s != nil {
		delete(c.free, query)
		return s, nil
	}
	return c.PrepareContext(ctx, query)
}

func (c *compiled) put(query string, s driver.Stmt) {
	if c.free[query] != nil || len(c.free) >= keptStatements {
		s.Close()
		return
	}
	c.free[query] = s
}

// ExecContext implements driver.ExecerContext.
func (c *compiled) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.take(ctx, query)
	if err != nil {
		return nil, err
	}
	defer c.put(query, s)
	return s.(driver.StmtExecContext).ExecContext(ctx, args)
}

// QueryContext implements driver.QueryerContext.
func (c *compiled) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.take(ctx, query)
	if err != nil {
		return nil, err
	}

	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, args)
	if err != nil {
		c.put(query, s)
		return nil, err
	}
	return &rowsOf{rows, func() { c.put(query, s) }}, nil
}

// A rowsOf is rows whose statement is put back when they are closed.
type rowsOf struct {
	driver.Rows
	put func()
}

// Close implements driver.Rows. It is called once.
func (r *rowsOf) Close() error {
	defer r.put()
	return r.Rows.Close()
}
