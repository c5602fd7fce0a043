package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

var ctx = context.Background()

// child is another server: this binary, run again with a role. It says what it
// has to say on stdout, one line each.
func child(role string) int {
	s, err := Open(folder(os.Getenv("STORE_DIR")), Options{})
	if err == nil {
		err = roles[role](s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		return 1
	}
	return 0
}

var roles = map[string]func(s *Store) error{
	// hold owns a record and lives until it is told to end, or is killed.
	"hold": func(s *Store) error {
		if err := s.Create(ctx, "0123abcd", ownedBy(s.server)); err != nil {
			return err
		}
		fmt.Println(s.server)
		io.Copy(io.Discard, os.Stdin)
		return s.Close(ctx)
	},
	// lock holds the claim lock.
	"lock": func(s *Store) error {
		return s.claimed(ctx, false, func() error {
			fmt.Println(s.server)
			io.Copy(io.Discard, os.Stdin)
			return nil
		})
	},
	// count adds to a record that many share.
	"count": func(s *Store) error {
		for range 5 {
			err := s.Update(ctx, "0123abcd", func(body []byte) ([]byte, error) {
				return addOne(body)
			})
			if err != nil {
				return err
			}
		}
		return s.Close(ctx)
	},
	// die writes, and kills itself at a point of a later write.
	"die": func(s *Store) error {
		op, point, _ := strings.Cut(os.Getenv("STORE_ARG"), "/")
		if err := s.Write(ctx, "0123abcd", numbered(1)); err != nil {
			return err
		}
		if op == "replace" {
			foreign, _, err := s.seal("0123abcd", numbered(77))
			if err != nil {
				return err
			}
			if err := os.WriteFile(s.RecordPath("0123abcd"), foreign, 0o600); err != nil {
				return err
			}
		}
		fmt.Println(s.server)
		s.disk.Carry = after(point, func() error {
			p, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = p.Kill()
			}
			if err != nil {
				return err
			}
			select {}
		})
		switch op {
		case "create":
			return s.Create(ctx, "00000002", numbered(2))
		case "update":
			return s.Update(ctx, "0123abcd", func([]byte) ([]byte, error) { return numbered(2), nil })
		case "define":
			return s.PutDefinition(ctx, hashOf("whole"), []byte("whole"))
		}
		return s.Write(ctx, "0123abcd", numbered(2))
	},
}

func ownedBy(server string) []byte {
	return fmt.Appendf(nil, "{\n  \"owner\": %q\n}", server)
}

func owner(body []byte) string {
	return strings.Split(string(body), `"`)[3]
}

func addOne(body []byte) ([]byte, error) {
	digits := strings.Trim(string(body), "{}\n :\"n")
	n, err := strconv.Atoi(digits)
	return numbered(n + 1), err
}

// A process is a running child.
type process struct {
	*testkit.Child
	first string // the first line it said, "" if it ended before
}

// start runs a child and waits for its first line.
func start(t testing.TB, dir, role, arg string) *process {
	t.Helper()
	c := testkit.Start(t, "STORE_CHILD="+role, "STORE_DIR="+dir, "STORE_ARG="+arg)
	return &process{c, c.Line()}
}

// hashOf is the hash of a definition.
func hashOf(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}
