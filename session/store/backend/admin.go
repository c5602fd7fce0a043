package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"deepwork/actor/presence"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/state"
	"deepwork/session/store/local"
	"deepwork/session/store/transfer"
)

// FilesURL stands for the files of a project where a URL is expected.
const FilesURL = "files"

// A Status describes the store of a project, for people.
type Status struct {
	Store      string         `json:"store"`             // "files" or "postgres"
	Where      string         `json:"where"`             // without secrets
	Project    string         `json:"project,omitempty"` // the project's name in a database
	Repository string         `json:"repository,omitempty"`
	Schema     int            `json:"schema,omitempty"` // its version in the database
	Knows      int            `json:"knows,omitempty"`  // the version that this program knows
	Problem    string         `json:"problem,omitempty"`
	Counts     map[string]int `json:"counts"`
	Servers    []Server       `json:"servers"`
	Unbound    bool           `json:"-"` // the user has not confirmed that the folder belongs to the project
}

// A Server is a process that uses a project's files, or a place where processes use a database.
type Server struct {
	ID      string `json:"id,omitempty"` // the id of the process
	Text    string `json:"text"`         // its process id and host, or the host and folder of the place, for people
	Machine string `json:"machine,omitempty"`
}

// Look returns the status of a project's store. It changes nothing. If something prevents it from looking,
// that is the Problem.
func Look(ctx context.Context, f *state.Folder, c Choice) (Status, error) {
	s := Status{Store: "postgres", Counts: map[string]int{}, Servers: []Server{}}
	if c.URL == "" {
		s.Store = FilesURL
		files(ctx, f, &s)
		return s, nil
	}

	pg, b, err := connection(ctx, f, &c, true, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return s, err
	}
	defer pg.Close(ctx)
	s.Where, s.Project = pg.Where(), c.Project
	now, err := pg.Status(ctx)
	s.Schema = now.Version
	s.Knows = now.Latest
	s.Repository = now.Repository
	switch {
	case err != nil:
		s.Problem = err.Error()
	case now.Version > now.Latest:
		s.Problem = now.Refusal.Error()
	case now.Version == 0:
		s.Problem = "the schema does not exist: run 'deepwork store migrate', or start a server"
	case now.Version < now.Latest:
		s.Problem = "the schema has to be migrated: run 'deepwork store migrate', or start a server"
	case now.Repository == "":
		s.Problem = "the name of the project is not used yet: the first server binds it to its repository"
	case now.Refusal != nil:
		s.Problem = now.Refusal.Error()
	default:
		s.Counts = map[string]int{
			"active sessions": now.Active,
			"ended sessions":  now.Sessions - now.Active,
			"tasks":           now.Tasks,
			"attempts":        now.Attempts,
			"remote runs":     now.Executions,
		}
		if refused := b.admit(ctx, false, true); refused != nil {
			s.Problem, s.Unbound = refused.Error(), session.CodeOf(refused) == codes.Untrusted
		}
	}

	for _, p := range now.Places {
		s.Servers = append(s.Servers, Server{Text: p.String(), Machine: p.Machine})
	}

	return s, nil
}

// Bind records that a folder belongs to the project of a choice, because the user said so.
func Bind(ctx context.Context, f *state.Folder, c Choice) error {
	pg, b, err := connection(ctx, f, &c, true, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return errors.Join(b.remember(ctx), pg.Close(ctx))
}

func files(ctx context.Context, f *state.Folder, s *Status) {
	stores := local.Stores(f, true, nil)
	defer stores.Close(ctx) // read-only
	db := stores.Database
	s.Where = db.Where()
	s.Counts = map[string]int{"active sessions": 0, "ended sessions": 0, "tasks": 0, "attempts": 0, "remote runs": 0}
	counts := transfer.Counts{}
	err := local.NewFile(f).Rows(ctx, func(r transfer.Row) error {
		counts[r.Table]++
		if r.Table == "workflow_sessions" && r.Values["status"] == "active" {
			s.Counts["active sessions"]++
		}
		return nil
	})
	if err != nil {
		s.Problem = err.Error()
	}
	s.Counts["ended sessions"] = counts["workflow_sessions"] - s.Counts["active sessions"]
	s.Counts["tasks"] = counts["tasks"]
	s.Counts["attempts"] = counts["attempts"]
	s.Counts["remote runs"] = counts["workflow_executions"]

	m := session.NewMember(f, nil)
	alive, _ := m.Others()
	for _, path := range alive {
		id, _ := presence.LockOf(filepath.Base(path))
		s.Servers = append(s.Servers, Server{ID: id, Text: m.Describe(id)})
	}
}

// Migrate creates or migrates the schema of a database, and returns its versions before and after.
func Migrate(ctx context.Context, f *state.Folder, c Choice) (where string, from, to int, err error) {
	pg, _, err := connection(ctx, f, &c, false, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", 0, 0, err
	}
	defer pg.Close(ctx)
	if from, to, err = pg.Migrate(ctx); err != nil {
		err = fmt.Errorf("migrating the schema: %w", err)
	}
	return pg.Where(), from, to, err
}

// Copy copies a project from one store to another; see transfer.Copy.
func Copy(ctx context.Context, f *state.Folder, from, to Choice) (counts transfer.Counts, err error) {
	if from == to {
		return nil, fmt.Errorf("both stores are the same")
	}
	if from.File != "" {
		if _, err := os.Stat(from.File); err != nil {
			return nil, fmt.Errorf("looking for the backup: %w", err)
		}
	}

	var sides []transfer.Side
	for _, c := range []Choice{from, to} {
		if c.File != "" {
			sides = append(sides, local.NewBackup(f, c.File))
			continue
		}
		if c.URL == "" {
			sides = append(sides, local.NewFile(f))
			continue
		}

		pg, b, err := connection(ctx, f, &c, false, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		defer pg.Close(ctx)
		sides = append(sides, pg.Side(b.place))
	}
	return transfer.Copy(ctx, sides[0], sides[1])
}
