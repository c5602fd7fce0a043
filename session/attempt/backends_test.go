package attempt

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"testing"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
	files "deepwork/session/store/local"
	"deepwork/session/store/postgres"
	"deepwork/session/store/postgres/pgtest"
)

// postgresVariable is set while the tests run with PostgreSQL, also for child processes: to a text
// that is new for each run.
const postgresVariable = "DEEPWORK_TEST_RUN"

// machineHere is the machine of tests with one.
var machineHere = task.Place{MachineID: "0a1b2c3d", MachineName: "here"}

// onlyFiles are the tests that are about files, with the reason. The others run with PostgreSQL, too.
var onlyFiles = map[string]string{
	"TestFullDisk":                   "the disk of the board's file is full",
	"TestInspectBoard":               "it changes the rows of SQLite",
	"TestInspectChangesNothing":      "it compares the files of a board",
	"TestBoardOfAWorkspaceElsewhere": "it changes the rows of SQLite",
	"TestEndedWithoutServer":         "it sets the clock of SQLite",
	"TestDamagedBoard":               "the file of the database is damaged",
}

// both skips a test that is about files if the tests run with PostgreSQL.
func both(t testing.TB) {
	if why := onlyFiles[t.Name()]; why != "" && os.Getenv(postgresVariable) != "" {
		t.Skip("with files only: " + why)
	}
}

// againWithPostgres runs the tests with PostgreSQL, if it is installed.
func againWithPostgres(m *testing.M) error {
	if _, err := pgtest.Shared(); err != nil {
		fmt.Println("the tests with PostgreSQL are skipped:", err)
		if !errors.Is(err, pgtest.ErrMissing) || os.Getenv("DEEPWORK_TEST_POSTGRES_REQUIRED") == "1" {
			return err
		}
		return nil
	}
	os.Setenv(postgresVariable, rand.Text())
	if m.Run() != 0 {
		return errors.New("FAIL: with PostgreSQL")
	}
	return nil
}

// stores returns the stores of a server of the project, nil if the tests run with files.
func (p *project) stores() *store.Stores {
	if os.Getenv(postgresVariable) == "" {
		return nil
	}
	at := machineHere
	at.Root = p.root
	return storesIn(p.root, at)
}

// storesWith returns the stores of a server whose database is wrapped by between.
func (p *project) storesWith(between func(store.Database) store.Database) *store.Stores {
	stores := p.stores()
	if stores == nil {
		stores = files.Stores(state.Of(p.root), false, nil)
	}
	p.t.Cleanup(func() { must(p.t, stores.Close(ctx)) })
	copied := *stores
	copied.Database = between(stores.Database)
	return &copied
}

// schemaURL returns the URL of the schema with a name.
func schemaURL(name string) string {
	server, err := pgtest.Shared()
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256([]byte(name + os.Getenv(postgresVariable)))
	return server.At("test_" + hex.EncodeToString(sum[:8]))
}

// openIn opens the schema with a name for a process at a place, the last one there.
func openIn(name string, at task.Place) *postgres.Store {
	s, err := postgres.Open(postgres.Options{URL: schemaURL(name), Project: "shop",
		Repository: postgres.Repository{Remote: "https://example.com/shop.git"}, Machine: at.MachineID, Root: at.Root})
	if err != nil {
		panic(err)
	}
	return s
}

// storesIn returns the stores of a process at a place in the schema with a name.
func storesIn(name string, at task.Place) *store.Stores {
	return backend.Of(openIn(name, at), session.NewMember(state.Of(at.Root), nil), &at, "shop")
}
