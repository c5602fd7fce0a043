package task

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A pool hands out a fixed number of connections, each to one goroutine at a
// time. The writer's has one: changes are made one after another.
type pool struct {
	file   *file
	db     *sql.DB
	begin  string
	reads  bool
	free   chan *link // capacity: their number; never closed
	closed chan struct{}
	once   sync.Once
}

func newPool(f *file, dsn string, size int, reads bool) *pool {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		panic(err) // the driver is not linked in
	}
	db.SetMaxIdleConns(-1) // the links are what is kept
	p := &pool{file: f, db: db, begin: "BEGIN IMMEDIATE", reads: reads,
		free: make(chan *link, size), closed: make(chan struct{})}
	if reads {
		p.begin = "BEGIN"
	}
	for range size {
		p.free <- &link{}
	}
	return p
}

// take waits for a connection that nobody uses.
func (p *pool) take(ctx context.Context) (*link, error) {
	select {
	case <-p.closed:
		return nil, ErrClosed
	default:
	}
	select {
	case l := <-p.free:
		return l, nil
	case <-p.closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close waits until every connection is given back, and closes them.
func (p *pool) close() error {
	var err error
	p.once.Do(func() {
		close(p.closed)
		for range cap(p.free) {
			l := <-p.free
			err = errors.Join(err, l.close())
		}
		err = errors.Join(err, p.db.Close())
	})
	return err
}

// prepare runs f on a connected link, outside of a transaction, again while
// another process is in the way.
func (p *pool) prepare(ctx context.Context, f func(l *link) error) error {
	return p.with(ctx, f)
}

// do runs f in a transaction, which is committed if f returns nil. f may run
// several times, each in a transaction of its own.
func (p *pool) do(ctx context.Context, f func(t tx) error) error {
	return p.with(ctx, func(l *link) error {
		// A change is not broken off half-way: the caller is to know whether it
		// was made.
		within := ctx
		if !p.reads {
			within = context.WithoutCancel(ctx)
			if err := p.file.inPlace(); err != nil {
				return err
			}
		}
		return l.transact(within, p.begin, f)
	})
}

// with lends a connected link to f, again and again while f finds the database
// locked and ctx lives.
func (p *pool) with(ctx context.Context, f func(l *link) error) error {
	l, err := p.take(ctx)
	if err != nil {
		return err
	}
	defer func() { p.free <- l }()
	for begun := time.Now(); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := l.connect(ctx, p)
		if err == nil {
			err = f(l)
		}
		switch {
		case err == nil:
			return nil
		case !busy(err):
			if ctx.Err() != nil && p.reads {
				return ctx.Err()
			}
			return p.file.explain(err)
		}
		if waited := time.Since(begun); waited > 5*time.Second {
			p.file.logger.Warn("the task board is locked by another process", "path", p.file.path, "waited", waited.Round(time.Millisecond))
			begun = time.Now()
		}
		pause := time.NewTimer(time.Duration(1+rand.IntN(5)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("another process has the board locked: %w", ctx.Err())
		case <-p.closed:
			pause.Stop()
			return ErrClosed
		}
	}
}
