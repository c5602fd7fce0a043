package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"deepwork/actor/presence"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/git"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/postgres"
)

// connection returns the access to a project in a database, under the name of its repository unless the
// choice has another one. It does not connect.
func connection(
	ctx context.Context, f *state.Folder, c *Choice, readOnly bool, alone func() bool, logger *slog.Logger,
) (*postgres.Store, *binding, error) {
	remote, root, err := git.Identity(ctx, f.Root)
	if err != nil {
		return nil, nil, fmt.Errorf(
			"the name of a project in a database is bound to its repository, which git cannot read here: %w", err)
	}
	if c.Project == "" && os.Getenv("CI") != "" {
		return nil, nil,
			fmt.Errorf("the store needs the name of the project, which is not derived from the repository in CI: "+
				"pass --project or set %s", config.ProjectEnv)
	}
	b := &binding{folder: f, given: c.Project != ""}
	if !b.given {
		c.Project = nameOf(remote, f.Root)
	}
	if b.place, err = session.PlaceOf(f); err != nil {
		return nil, nil, err
	}
	pg, err := postgres.Open(postgres.Options{
		URL: c.URL, Project: c.Project, Repository: postgres.Repository{Remote: remote, RootCommit: root},
		Machine: b.place.MachineID, Root: f.Root, ReadOnly: readOnly, Alone: alone, Logger: logger,
		Admit: func(ctx context.Context, first bool) error { return b.admit(ctx, first, readOnly) },
	})
	if err == nil {
		b.name, b.where = c.Project, pg.Where()
	}
	return pg, b, err
}

// shared returns the stores of a project in a database.
func shared(ctx context.Context, f *state.Folder, c Choice, readOnly bool, logger *slog.Logger) (*store.Stores, error) {
	member := session.NewMember(f, logger)
	alone := func() bool {
		others, _ := member.Others()
		return len(others) == 0
	}
	pg, b, err := connection(ctx, f, &c, readOnly, alone, logger)
	if err != nil {
		return nil, err
	}

	// An error in the settings is reported at once. If the database cannot be reached, calls wait for it.
	soon, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if readOnly {
		// Its calls report what is wrong.
	} else if err := pg.Open(soon); errors.Is(err, store.ErrUnavailable) {
		logger.Warn("the store does not answer: calls are refused until it does", "error", err)
	} else if session.CodeOf(err) == codes.Untrusted {
		logger.Info("calls are refused until the user says that the folder belongs to the project", "error", err)
	} else if err != nil {
		return nil, errors.Join(err, pg.Close(ctx))
	}

	return Of(pg, member, &b.place, c.Project), nil
}

// members are the processes of this machine that share a database with others.
type members struct {
	*presence.Member
	pg Shared
}

// Enter implements store.Members: other processes of this machine see this process, and other machines see
// its place.
func (m members) Enter(ctx context.Context) error {
	if err := m.Member.Enter(ctx); err != nil {
		return err
	}
	return m.pg.Enter(ctx)
}

// Shared is a database that several machines share: the interface that package sqlstore needs, and the places
// where a project is used. postgres.Store documents its methods.
type Shared interface {
	Database() store.Database
	Enter(ctx context.Context) error
	GoneFor(ctx context.Context, p task.Place) (time.Duration, error)
	Elsewhere(ctx context.Context) (bool, error)
	Unavailable() error
	Close(ctx context.Context) error
}

// Of returns the stores of a project in a database, for a member of the processes at this place.
func Of(pg Shared, member *presence.Member, place *task.Place, project string) *store.Stores {
	db := pg.Database()
	return &store.Stores{
		Members: members{member, pg}, Database: db, GoneFor: pg.GoneFor,
		Place: place, Project: project, Env: []string{config.ProjectEnv + "=" + project},
		Others: func(ctx context.Context) (bool, error) {
			if others, _ := member.Others(); len(others) > 0 {
				return true, nil
			}
			return pg.Elsewhere(ctx)
		},
		Unavailable: pg.Unavailable,
		Close: func(ctx context.Context) error {
			// close last: until then no other server takes over what this one runs
			return errors.Join(pg.Close(ctx), member.Leave())
		},
	}
}

// nameOf returns the name of a project without a given one: that of its remote, else of its folder.
func nameOf(remote, root string) string {
	name := strings.TrimSuffix(path.Base(strings.ReplaceAll(strings.TrimRight(remote, "/"), ":", "/")), ".git")
	if name == "." || name == "/" || name == "" {
		return filepath.Base(root)
	}
	return name
}
