package testkit

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// A recorder is a test that keeps what it would fail with.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper()                      {}
func (r *recorder) Error(args ...any)            { r.said += fmt.Sprintln(args...) }
func (r *recorder) Errorf(f string, args ...any) { r.said += fmt.Sprintf(f, args...) }
func (r *recorder) fails(what bool, t *testing.T) {
	t.Helper()
	Equal(t, r.said != "", what, "%s", r.said)
}

// Each helper fails a test exactly if what it judges is not as wanted.
func TestJudges(t *testing.T) {
	type pair struct{ a, b int }
	for _, wrong := range []bool{false, true} {
		for name, judge := range map[string]func(t testing.TB){
			"Equal":    func(t testing.TB) { Equal(t, pair{1, 2}, map[bool]pair{false: {1, 2}, true: {1, 3}}[wrong], "a pair") },
			"Same":     func(t testing.TB) { Same(t, []int{}, map[bool][]int{true: {1}}[wrong]) },
			"Contains": func(t testing.TB) { Contains(t, "abc", map[bool]string{false: "b", true: "d"}[wrong], "a %s", "text") },
			"Fails":    func(t testing.TB) { Fails(t, map[bool]error{false: io.EOF}[wrong], "EOF") },
			"FailsWith": func(t testing.TB) {
				FailsWith(t, map[bool]error{false: io.EOF, true: errors.New("EOF")}[wrong], io.EOF)
			},
			"Works": func(t testing.TB) { Works(t, map[bool]error{true: io.EOF}[wrong]) },
		} {
			t.Run(fmt.Sprint(name, wrong), func(t *testing.T) {
				r := &recorder{TB: t}
				judge(r)
				r.fails(wrong, t)
				t.Log(r.said)
			})
		}
	}
}
