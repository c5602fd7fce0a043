// Package postgres keeps the sessions and the task board of projects in a PostgreSQL database that
// processes on several machines share.
//
// Everything works through PgBouncer in transaction mode: no prepared statements, nothing that
// lasts longer than a transaction, no startup parameters.
//
// Processes own nothing here. A move of a session is one statement that names the revision that it replaces
// (move.go), and moves that wait in a process share one (group.go); what a process claims on the board is a
// row that names it. A transaction of the board has the lock of the project (tx.go). If the reply to a commit
// is lost, pg_xact_status says whether it was made, or the row itself. A row of each place says whether the
// project is used there (place.go).
package postgres

import (
	"context"
	"database/sql"
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

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	callTime    = 10 * time.Second // of a call whose context has no deadline
	connections = 24               // per process, plus one to touch its place, plus one for hints
)

// Options configure a Store. URL, Project and Machine are required.
type Options struct {
	// URL is postgres://user:password@host:port/database, with the parameters of pgx, and schema, by default
	// deepwork. For another machine it needs sslmode=verify-full.
	URL        string
	Project    string     // the name that all machines use for the project
	Repository Repository // of Root; zero is refused
	Machine    string     // the id of this installation; Machine and Root are the place
	Root       string     // of the project on this machine
	ReadOnly   bool       // nothing is created, migrated or written
	// Admit returns why the folder may not use the project's name, which matches its repository. first means
	// that this call has bound the name. nil admits every folder.
	Admit func(ctx context.Context, first bool) error
	// Alone reports whether no other process of the place uses the project; nil means that no other does.
	Alone  func() bool
	Logger *slog.Logger
	Now    func() time.Time // default: the clock of the database
}

// A Store is a process's access to the database. It connects when first used, and reconnects whenever the
// connection was lost. Its methods may be called from any goroutine. They return by the deadline of their
// context, or within 10 seconds, and fail at once while the database is known to be unreachable. Errors:
// store.ErrUnavailable if the database does not answer, task.ErrVersion if the schema has a version that this
// program does not know, or task.ErrClosed.
type Store struct {
	o      Options
	host   string
	schema string
	config *pgx.ConnConfig
	where  string

	pool     *sql.DB
	probes   *sql.DB       // to touch the place; calls cannot delay it
	joining  chan struct{} // holds an element while a call connects
	writing  chan struct{} // holds an element while a transaction changes the board
	scope    atomic.Int64  // scopes.id; 0 means not connected yet
	texts    sync.Map      // statements as given -> those of this schema
	looks    sync.Map      // statements of a singleReader, likewise
	contact  contact
	stores   *sqlstore.Store // of the database
	hints    hints
	groups   groups
	closing  context.Context
	halt     context.CancelFunc
	finished sync.WaitGroup // the goroutines of contact and hints
}

// Open returns the store of a project. It checks the URL and does not connect.
func Open(o Options) (*Store, error) {
	config, schema, err := parse(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Project == "" || len(o.Project) > 200 {
		return nil,
			errors.New("a PostgreSQL store needs the name that all machines use for this project: pass --project or " +
				"set DEEPWORK_PROJECT, at most 200 bytes")
	}

	for _, text := range []string{o.Project, o.Root} {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return nil,
				fmt.Errorf("a PostgreSQL store takes no name or folder of a project with control characters or "+
					"without UTF-8: %q", text)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		o:       o,
		schema:  schema,
		config:  config,
		where:   location(config, schema),
		pool:    stdlib.OpenDB(*config, stdlib.OptionBeforeConnect(noCancel)),
		probes:  stdlib.OpenDB(*config, stdlib.OptionBeforeConnect(noCancel)),
		joining: make(chan struct{}, 1),
		writing: make(chan struct{}, 1),
	}

	if o.Now == nil {
		s.o.Now = s.now
	}

	if s.host, err = os.Hostname(); err != nil {
		s.host = "unknown"
	}

	s.pool.SetMaxOpenConns(connections)
	s.pool.SetMaxIdleConns(connections)
	s.probes.SetMaxOpenConns(1)

	for _, pool := range []*sql.DB{s.pool, s.probes} {
		pool.SetConnMaxIdleTime(time.Minute)
		pool.SetConnMaxLifetime(10 * time.Minute) // so that a server that was moved is found again
	}

	s.closing, s.halt = context.WithCancel(context.Background())
	s.contact.probe = wait.NewSignal()
	s.hints.init()

	s.stores = newStores(s)
	return s, nil
}

// Where returns the host, database and schema, for messages.
func (s *Store) Where() string { return s.where }

// Open connects now, creates or migrates the schema if necessary, and checks that the project's name belongs
// to the repository. If the database cannot be reached, calls fail at once until it answers.
func (s *Store) Open(ctx context.Context) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	_, err := s.connect(ctx)
	if errors.Is(err, store.ErrUnavailable) && !s.o.ReadOnly {
		s.fails(err)
		s.keep()
		s.contact.probe.Wake()
	}
	return err
}

// Close disconnects. If no other process at this place uses the project, the place no longer counts as using
// it. It waits at most until ctx ends.
func (s *Store) Close(ctx context.Context) error {
	if s.closing.Err() != nil {
		return nil
	}

	ctx, cancel := s.deadline(ctx)
	defer cancel()
	s.halt()

	_ = wait.Group(ctx, &s.finished)
	if s.entered() && (s.o.Alone == nil || s.o.Alone()) {
		s.leave(ctx)
	}
	return errors.Join(s.pool.Close(), s.probes.Close())
}

// deadline returns a context with a deadline.
func (s *Store) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTime)
}

// connect returns the scope of the project, for a call that begins. It fails at once if the database is known
// to be unreachable.
func (s *Store) connect(ctx context.Context) (scope int64, err error) {
	if err := s.refused(); err != nil && s.closing.Err() == nil {
		return 0, err
	}
	return s.join(ctx)
}

// join returns the scope of the project. The first successful call has migrated the schema.
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

	ctx, cancel := context.WithTimeout(s.closing, callTime) // also on behalf of other calls
	defer cancel()
	err = s.retry(ctx, func() error {
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

	if err != nil && !errors.Is(err, store.ErrUnavailable) { // the error must name the database
		err = fmt.Errorf("opening %s: %w", s.where, err)
	}
	if err != nil {
		return 0, err
	}

	s.scope.Store(scope)
	return scope, nil
}
