package local

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"deepwork/session/store"

	"deepwork/actor/durable"
)

// A server is killed at each point of a write. What the next server finds is
// the old record or the new one, whole; what the dead one left is gone after
// the next server's first write.
func TestCrash(t *testing.T) {
	points := []string{durable.OpCreate, durable.OpWrite, durable.OpSync, durable.OpMove, durable.OpSyncDir}
	old, next := string(numbered(1)), string(numbered(2))
	for _, op := range []string{"write", "create", "update", "define", "replace"} {
		all := points
		if op == "replace" {
			all = append([]string{durable.OpLink}, points...)
		}
		for _, point := range all {
			t.Run(op+"/"+point, func(t *testing.T) {
				t.Parallel()
				dir := newDir(t)
				p := start(t, dir, "die", op+"/"+point)
				if err := p.Wait(); err == nil || p.ProcessState.Success() {
					t.Fatal("the child did not die")
				}
				if said := p.Err.String(); said != "" {
					t.Fatal(said)
				}
				after := point == durable.OpMove || point == durable.OpSyncDir
				s := open(t, dir, Options{})
				if s.member.Alive(p.first) {
					t.Error("a killed server looks alive")
				}
				read := func(id string) string {
					body, err := s.Read(ctx, id)
					if err != nil && !errors.Is(err, store.ErrNotFound) {
						t.Error(err)
					}
					return string(body)
				}
				id, want := "0123abcd", old
				switch {
				case op == "create" && after:
					id, want = "00000002", next
				case op == "define" || op == "create":
				case op == "replace" && !after:
					want = string(numbered(77))
				case after:
					want = next
				}
				if got := read(id); got != want {
					t.Errorf("the record is %q, want %q", got, want)
				}
				if op == "create" && !after && read("00000002") != "" {
					t.Error("half a Create is there")
				}
				if op == "define" {
					data, err := s.Definition(ctx, hashOf("whole"))
					if after && (err != nil || string(data) != "whole") || !after && !errors.Is(err, store.ErrNotFound) {
						t.Errorf("the definition is %q, %v", data, err)
					}
				}
				if op == "replace" && (after || point == durable.OpLink) {
					kept := asides(t, s, "replaced_session_0123abcd_")
					if len(kept) != 1 {
						t.Fatalf("set aside: %v", kept)
					}
					data, err := os.ReadFile(kept[0])
					must(t, err)
					if body, _, err := durable.Unseal(s.RecordPath("0123abcd"), data, s.sealer); err != nil || string(body) != string(numbered(77)) {
						t.Errorf("kept %q, %v", body, err)
					}
				}
				must(t, s.Write(ctx, "0123abcd", numbered(3)))
				mustRead(t, s, "0123abcd", numbered(3))
				noTemps(t, dir)
				locks, err := filepath.Glob(filepath.Join(folder(dir).Servers(), "server_*.lock"))
				if err != nil || len(locks) != 1 || locks[0] != s.member.Path(s.server) {
					t.Errorf("the lock files are %v", locks)
				}
			})
		}
	}
}
