package workflow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/session"
	"deepwork/session/record"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// Inspect checks every session of the project, and the exports in the roots on this machine; see
// record.Inspection. The error is a system error.
func (e *Engine) Inspect(ctx context.Context) (session.Report, error) {
	i := &record.Inspection{Behind: func(r *record.Record) string { return e.exports.Behind(r.Row, r.State) }}
	if err := e.inspect(ctx, i); err != nil {
		return session.Report{}, fmt.Errorf("inspecting the sessions: %w", err)
	}
	return i.Report, nil
}

func (e *Engine) inspect(ctx context.Context, i *record.Inspection) error {
	all, err := e.List(ctx)
	if err != nil {
		return err
	}
	rows := make([]store.Session, len(all))
	for n, info := range all {
		rows[n] = info.Session
	}
	if err := e.records.Inspect(ctx, rows, i); err != nil {
		return err
	}
	inUse, active := 0, 0
	for _, info := range all {
		if _, readable := i.Found(info.ID); readable && info.Status == string(machine.Active) {
			active++
			if info.InUse {
				inUse++
			}
		}
	}
	if i.Report.Live, err = e.Stores.Others(ctx); err != nil {
		return err
	}
	i.Report.Counts = append(i.Report.Counts, session.Count{N: i.Len(), What: "session",
		Of: fmt.Sprintf("%d active, %d of them with a server", active, inUse)})
	return e.reviewFiles(i)
}

// reviews finds unneeded instructions of self-reviews.
func (e *Engine) reviewFiles(i *record.Inspection) error {
	dir := e.State.Tmp()
	drafts, err := fs.Glob(os.DirFS(dir), ".review-*")
	notes, err2 := fs.Glob(os.DirFS(dir), "quality_review_????????_*.md")
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	drafts = slices.DeleteFunc(drafts, func(name string) bool {
		fi, err := os.Lstat(filepath.Join(dir, name))
		return err != nil || time.Since(fi.ModTime()) < time.Minute
	})
	for _, name := range notes {
		id := strings.TrimPrefix(name, "quality_review_")[:8]
		if known, _ := i.Found(id); machine.IsSessionID(id) && !known {
			drafts = append(drafts, name)
		}
	}
	if n := len(drafts); n > 0 {
		i.Report.Note(filepath.Join(dir, drafts[0]), machine.Count(n, "file")+" with review instructions that no session needs", "delete them at will")
	}
	return nil
}
