package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	folder "deepwork/session/state"
)

// board is the database of all machines, as that of their project.
func (f *fleet) board() (driver, source string) {
	return "pgx", f.db.At("") + "&search_path=sim&deepwork.scope=1"
}

// states returns the state of the project on each machine.
func (f *fleet) states() (all []*folder.Folder) {
	own := os.Getenv(folder.Env)
	defer os.Setenv(folder.Env, own)
	for _, m := range f.machines {
		os.Setenv(folder.Env, m.state)
		all = append(all, stateOf(m.root))
	}
	return all
}

// judge compares the database and what agents have done with the histories, and checks those. No
// server may run.
func (f *fleet) judge(ctx context.Context) error {
	var id, body string
	goals := map[string][]string{} // sessions
	err := f.query(ctx, "SELECT id, body FROM session_records WHERE body IS NOT NULL", func() {
		var r record
		err := json.Unmarshal([]byte(body), &r)
		goal := f.compare(id, r, err)
		goals[goal] = append(goals[goal], id)
	}, &id, &body)
	if err != nil {
		return err
	}
	f.history.once("session", goals, func(_ string, e *effect) bool { return e.id != "" })
	if err := f.judgeBoard(ctx); err != nil {
		return err
	}
	f.history.check()
	for _, m := range f.machines {
		check := exec.CommandContext(ctx, f.program, "check", "--path", m.root)
		check.Env = append(os.Environ(), m.env...)
		if text, err := check.CombinedOutput(); err != nil {
			f.history.fault("deepwork check", "machine %d: %v\n%s", m.number, err, text)
		}
	}
	return nil
}
