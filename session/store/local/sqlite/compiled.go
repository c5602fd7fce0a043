package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"modernc.org/sqlite"
)

// keptStatements is the number of statements that a connection keeps compiled. The program has fewer
// texts; those that are put together at run time are compiled each time once it is reached.
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

// A phase says where a connection is in a transaction of the writer.
type phase int

const (
	outside phase = iota // no transaction of the writer is open
	inside
	lost // SQLite has ended it: a statement would now be a transaction of its own, so it is refused
)

// A compiled is a connection that compiles each statement once. Compiling takes longer than running
// most of the statements of this program.
type compiled struct {
	driverConn
	number int64                  // of the connections of this process
	free   map[string]driver.Stmt // by their texts; one that runs, or whose rows are read, is not in it
	phase  phase
}

var made atomic.Int64 // connections

// A compiler is a connector that makes compiled connections.
type compiler struct {
	driver.Connector
	inPlace func() error
}

// connect returns a pool of at most n permanent connections, each a compiled. A connection that is made later is to the
// file that is open now, or fails.
func (d *DB) connect(dsn string, n int, more string) *sql.DB {
	c, err := sqlite.NewConnector(dsn + pragmas + more)
	if err != nil {
		panic(err) // the data source name has a form that this package gave it
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
	c.RegisterRollbackHook(nil) // the driver would keep it for the next connection at this address
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
