package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/presence"
	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/store"
)

// The feed of changes is a file of lines, "<kind> <id>", without syncs. The first is "changes
// <generation>": a large file is replaced, and positions, "<generation>:<offset>", in the old one
// are gone. A server that writes appends "server <id>", and "left <id>" when it closes the feed. A
// follower that finds such a server dead appends "lost <id>", which resets all followers.

const (
	changesName  = "changes"
	changesLimit = 1 << 20               // bytes
	changesRead  = 64 << 10              // bytes that Since reads at once
	changesPoll  = 50 * time.Millisecond // between two checks of the file by Wait
	lostPoll     = time.Second           // between two checks for dead servers
)

// Changes is the feed of changes of a project. It implements store.Changes.
type Changes struct {
	log    *slog.Logger
	member *presence.Member
	file   *sharedLog // for appending, and for reading of servers

	mu      sync.Mutex      // guards the following fields
	servers map[string]bool // that write to the file
	looked  time.Time       // when they were last checked

	limit atomic.Int64 // bytes, at which another file is started
}

// OpenChanges opens the feed in a folder. It does not touch the disk. member is nil for a process
// that only appends and whose death is not noticed.
func OpenChanges(dir string, member *presence.Member, log *slog.Logger) *Changes {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	file := &sharedLog{path: filepath.Join(dir, changesName)}
	if member != nil {
		file.greeting = "server " + member.ID() + "\n"
	}
	c := &Changes{log: log, member: member, file: file, servers: map[string]bool{}}
	c.limit.Store(changesLimit)
	return c
}

// Close closes the file.
func (c *Changes) Close() {
	last := ""
	if c.member != nil {
		last = "left " + c.member.ID() + "\n"
	}
	if err := c.file.close(last); err != nil {
		c.log.Debug("cannot tell others that no more changes follow", "error", err)
	}
}

// Append adds a change.
func (c *Changes) Append(change store.Change) {
	if err := c.append(change.Kind + " " + change.ID + "\n"); err != nil {
		c.log.Warn("cannot tell others of a change", "kind", change.Kind, "id", change.ID, "error", err)
	}
}

func (c *Changes) append(line string) error {
	if c.member != nil { // it must not look dead to readers of its name
		if err := c.member.Enter(context.Background()); err != nil {
			return err
		}
	}
	fi, err := os.Lstat(c.file.path)
	missing, large := errors.Is(err, fs.ErrNotExist), err == nil && fi.Size() >= c.limit.Load()
	if missing {
		err = session.MakeFolder(filepath.Dir(c.file.path))
	}
	if missing && err == nil || large {
		_, err = c.file.replace(durable.Disk{NoSync: true}, []byte("changes "+rand.Text()[:12]+"\n"))
	}
	if err != nil && large { // on Windows, while another process has it open
		c.limit.Store(2 * fi.Size())
		err = nil
	}
	if err == nil {
		err = c.file.append([]byte(line))
	}
	return err
}

// Since returns the changes after a position.
func (c *Changes) Since(ctx context.Context, position string) (store.News, error) {
	f, fi, err := durable.OpenRegular(c.file.path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return store.News{Reset: true}, nil
	}
	if err != nil {
		return store.News{}, fmt.Errorf("reading the feed of changes: %w", err)
	}
	defer f.Close()
	generation := generationOf(f)
	offset, ok := parsePosition(position, generation, fi.Size())
	if !ok {
		return store.News{Reset: true, Next: fmt.Sprintf("%s:%d", generation, fi.Size())}, nil
	}
	lines, err := linesFrom(f, offset, changesRead)
	if err != nil {
		return store.News{}, fmt.Errorf("reading the feed of changes: %w", err)
	}
	news := store.News{Next: fmt.Sprintf("%s:%d", generation, offset+int64(len(lines)))}
	for line := range bytes.Lines(lines) {
		switch kind, id, _ := strings.Cut(strings.TrimSpace(string(line)), " "); kind {
		case "lost":
			news.Reset = true
		case store.SessionChanged, store.ExecutionChanged, store.TaskChanged, store.AttemptChanged:
			news.Changes = append(news.Changes, store.Change{Kind: kind, ID: id})
		}
	}
	return news, nil
}

// Wait returns when there may be something after a position.
func (c *Changes) Wait(ctx context.Context, position string) error {
	for {
		if news, err := c.Since(ctx, position); err != nil || news.Next != position {
			return err
		}
		if err := wait.For(ctx, changesPoll); err != nil {
			return err
		}
		if err := c.findLost(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("cannot follow the feed of changes", "error", err)
		}
	}
}

// findLost appends a line for each server that died since the last check, unless that was just now.
func (c *Changes) findLost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lostPoll {
		return nil
	}
	c.looked = time.Now()
	lines, first, err := c.file.next()
	if first {
		clear(c.servers)
	}
	for line := range bytes.Lines(lines) {
		switch kind, id, _ := strings.Cut(strings.TrimSpace(string(line)), " "); kind {
		case "server":
			c.servers[id] = true
		case "lost", "left":
			delete(c.servers, id)
		}
	}
	for id := range c.servers {
		if err == nil && !c.member.Alive(id) {
			err = c.append("lost " + id + "\n")
		}
	}
	return err
}

// generationOf returns the generation in the first line of a file.
func generationOf(f *os.File) string {
	line, _ := linesFrom(f, 0, 64)
	first, _, _ := strings.Cut(string(line), "\n")
	return strings.TrimPrefix(first, "changes ")
}

// parsePosition returns the offset of a position in a file of this generation and size.
func parsePosition(position, generation string, size int64) (offset int64, ok bool) {
	of, at, _ := strings.Cut(position, ":")
	offset, err := strconv.ParseInt(at, 10, 64)
	return offset, err == nil && of == generation && 0 <= offset && offset <= size
}
