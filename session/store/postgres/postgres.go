// Package postgres keeps the sessions and the task board of projects in a PostgreSQL database that
// processes on several machines share.
//
// Everything works through PgBouncer in transaction mode: no prepared statements, nothing that
// lasts longer than a transaction, no startup parameters.
//
// A process writes the board, executions and requests only while it holds a lease (lease.go), and each such
// transaction checks it, so a process that was suspended or cut off cannot overwrite what another has taken
// over (tx.go). A session belongs to no process: a move is one statement that names the revision that it
// replaces, and needs no lease (move.go). If the reply to a commit is lost, the row of this process in
// commits says whether it was made.
package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	callTime    = 10 * time.Second // of a call whose context has no deadline
	connections = 24               // of a process at most, and two for its lease, and one for hints
)

// Options configure a Store. URL, Project and Machine are required.
type Options struct {
	// URL is postgres://user:password@host:port/database, with the parameters that pgx knows, and
	// schema, by default deepwork. Off this machine it needs sslmode=verify-full.
	URL        string
	Project    string     // the name that all machines use for the project
	Repository Repository // of Root; zero is refused
	Machine    string     // the id of this installation, for Member
	Root       string     // of the project on this machine, for people
	ReadOnly   bool       // nothing is created, migrated or written, and no lease is taken
	Logger     *slog.Logger
	Now        func() time.Time // default: the clock of the database
}

// A Store is a process's access to the database. It connects when it is first used, and again
// whenever the connection was lost. Its methods may be called from any goroutine, and take at most
// until the deadline of their context, else 10 seconds; they fail at once while the lease cannot be
// renewed. Errors: store.ErrUnavailable if the database does not answer, task.ErrVersion if the
// schema has a version that this program does not know, or task.ErrClosed.
type Store struct {
	o      Options
	id     string // of this process
	host   string
	schema string
	config *pgx.ConnConfig
	where  string

	pool     *sql.DB
	leases   *sql.DB       // for the lease, so that calls cannot delay it
	joining  chan struct{} // holds an element while a call connects
	writing  chan struct{} // holds an element while a transaction changes the board
	scope    atomic.Int64  // scopes.id; 0 means not connected yet
	texts    sync.Map      // statements as given, to those of this schema
	looks    sync.Map      // those of a looker, likewise
	lease    lease
	stores   *sqlstore.Store // of the database
	hints    hints
	closing  context.Context
	halt     context.CancelFunc
	finished sync.WaitGroup // the goroutines of the lease and the hints
}

// Open returns the store of a project. It checks the URL and does not connect.
func Open(o Options) (*Store, error) {
	config, schema, err := parse(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Project == "" || len(o.Project) > 200 {
		return nil, errors.New("a PostgreSQL store needs the name that all machines use for this project: pass --project or set DEEPWORK_PROJECT, at most 200 bytes")
	}
	for _, text := range []string{o.Project, o.Root} {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return nil, fmt.Errorf("a PostgreSQL store takes no name or folder of a project with control characters or without UTF-8: %q", text)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		o: o, id: randomHex(), schema: schema, config: config, where: location(config, schema),
		pool: stdlib.OpenDB(*config), leases: stdlib.OpenDB(*config),
		joining: make(chan struct{}, 1), writing: make(chan struct{}, 1),
	}
	if o.Now == nil {
		s.o.Now = s.now
	}
	if s.host, err = os.Hostname(); err != nil {
		s.host = "unknown"
	}
	s.pool.SetMaxOpenConns(connections)
	s.pool.SetMaxIdleConns(connections)
	s.leases.SetMaxOpenConns(2)
	for _, pool := range []*sql.DB{s.pool, s.leases} {
		pool.SetConnMaxIdleTime(time.Minute)
		pool.SetConnMaxLifetime(10 * time.Minute) // a server that was moved is found again
	}
	s.closing, s.halt = context.WithCancel(context.Background())
	s.lease.init()
	s.hints.init()
	s.stores = newStores(s)
	return s, nil
}

// Where returns the host, database and schema, for messages.
func (s *Store) Where() string { return s.where }

// Open connects now, creates or migrates the schema if necessary, and checks that the project's name
// belongs to the repository. If the database is away, the process takes a lease as soon as it answers,
// and until then calls fail at once.
func (s *Store) Open(ctx context.Context) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	_, err := s.connect(ctx)
	if errors.Is(err, store.ErrUnavailable) && !s.o.ReadOnly {
		s.begin(err)
	}
	return err
}

// Close ends the lease, so that others may take over the agents and executions of this process, and
// disconnects. It waits until ctx ends at most.
func (s *Store) Close(ctx context.Context) error {
	if s.closing.Err() != nil {
		return nil
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	s.halt()
	s.finished.Wait()
	err := s.leave(ctx)
	return errors.Join(err, s.pool.Close(), s.leases.Close())
}

// deadline returns a context with a deadline.
func (s *Store) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTime)
}

// connect returns the scope of the project, for a call that begins. It fails at once if the database is
// known to be away.
func (s *Store) connect(ctx context.Context) (scope int64, err error) {
	if err := s.away(); err != nil && s.closing.Err() == nil {
		return 0, err
	}
	return s.join(ctx)
}

// join returns the scope of the project. The first call that succeeds has migrated the schema.
func (s *Store) join(ctx context.Context) (scope int64, err error) {
	if s.closing.Err() != nil {
		return 0, task.ErrClosed
	}
	if scope := s.scope.Load(); scope > 0 {
		return scope, nil
	}
	select {
	case s.joining <- struct{}{}:
		defer func() { <-s.joining }()
	case <-ctx.Done():
		return 0, s.explain(ctx.Err())
	}
	if scope := s.scope.Load(); scope > 0 {
		return scope, nil
	}
	ctx, cancel := context.WithTimeout(s.closing, callTime) // for other calls, too
	defer cancel()
	err = s.again(ctx, func() error {
		prepare := s.migrate
		if s.o.ReadOnly {
			prepare = s.current
		}
		if err := prepare(ctx); err != nil {
			return err
		}
		scope, err = s.bind(ctx)
		return err
	})
	if s.closing.Err() != nil {
		return 0, task.ErrClosed
	}
	if err != nil && !errors.Is(err, store.ErrUnavailable) { // which names the database
		err = fmt.Errorf("opening %s: %w", s.where, err)
	}
	if err != nil {
		return 0, err
	}
	s.scope.Store(scope)
	return scope, nil
}

// randomHex returns 16 hexadecimal characters.
func randomHex() string {
	var id [8]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

var (
	_ store.Members = (*Store)(nil)
)
