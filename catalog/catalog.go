// Package catalog knows which jobs there are: one goroutine owns the job
// folders, watches them, and publishes immutable snapshots.
package catalog

import (
	"context"
	"io/fs"
	"log/slog"
	"time"
)

// Options configure a Catalog. The zero value of a field is its default.
type Options struct {
	Root       string   // project root, absolute
	Additional []string // more job folders, after the standard ones
	Standard   fs.FS    // jobs bundled with the binary; nil: none
	Logger     *slog.Logger
	Debounce   time.Duration // how long a burst of events is gathered; default 50 ms
	Grace      time.Duration // how long a vanished job stays served; default 500 ms
	Poll       time.Duration // interval where no watch can be had; default 1 s
	NoWatch    bool          // poll only
}

// A Catalog serves the jobs of a project.
type Catalog struct{}

// Open loads every job folder, publishes the first snapshot and begins to watch.
func Open(ctx context.Context, o Options) (*Catalog, error) { panic("not yet") }

// Snapshot returns the newest published snapshot. It never blocks.
func (c *Catalog) Snapshot() *Snapshot { panic("not yet") }

// Fresh returns a snapshot that includes every write to the job folders that
// ended before the call (read your own writes).
func (c *Catalog) Fresh(ctx context.Context) (*Snapshot, error) { panic("not yet") }

// FreshJob is Fresh for one job, by its name or directory name; it looks at the
// other jobs only when this one is not known or has moved.
func (c *Catalog) FreshJob(ctx context.Context, name string) (*Snapshot, error) { panic("not yet") }

// Changes returns a channel (capacity 1, coalescing) that receives after each
// published change, until ctx ends.
func (c *Catalog) Changes(ctx context.Context) <-chan struct{} { panic("not yet") }

// Close stops the goroutine and the watches and waits for them.
func (c *Catalog) Close(ctx context.Context) error { panic("not yet") }
