package runner

import (
	"os"
	"path/filepath"
	"testing"
)

// Whatever the records of a run hold, they are read, or refused with words: they
// outlive servers, and a machine that goes down may leave anything.
func FuzzRunRecords(f *testing.F) {
	f.Add([]byte(`{"code":0,"started_at":"2026-01-02T03:04:05Z","ended_at":"2026-01-02T03:04:06Z","final_message":"done"}`), []byte(`{"pid":1,"boot":"b","started_at":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"code":-1,"interrupted":true}`), []byte(`null`))
	f.Add([]byte(``), []byte(`{"pid":-1}`))
	f.Add([]byte(`[]`), []byte(`{"pid":99999999999999999999}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, exit, started []byte) {
		for name, data := range map[string][]byte{exitFile: exit, startedFile: started} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		v, err := look(dir)
		if err == nil && (v.exit == nil || v.started == nil || v.alive) {
			t.Errorf("%s and %s are there, and it says %+v", exitFile, startedFile, v)
		}
	})
}
