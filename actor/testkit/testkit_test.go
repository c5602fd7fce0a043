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

// Each helper fails a test exactly if what it judges is not as wanted.
func TestJudges(t *testing.T) {
	type pair struct{ a, b int }
	for wrong, err := range map[bool]error{false: io.EOF, true: errors.New("end")} {
		for name, judge := range map[string]func(t testing.TB){
			"Equal": func(t testing.TB) {
				Equal(t, pair{1, 2}, map[bool]pair{false: {1, 2}, true: {1, 3}}[wrong], "a pair")
			},
			"Same": func(t testing.TB) { Same(t, []int{}, map[bool][]int{true: {1}}[wrong]) },
			"Contains": func(t testing.TB) {
				Contains(t, "abc", map[bool]string{false: "b", true: "d"}[wrong], "a %s", "text")
			},
			"Lacks": func(t testing.TB) {
				Lacks(t, "abc", []string{"d", map[bool]string{false: "e", true: "b"}[wrong]})
			},
			"Fails":     func(t testing.TB) { Fails(t, err, "EOF") },
			"Fails not": func(t testing.TB) { Fails(t, map[bool]error{false: io.EOF}[wrong], "EOF") },
			"FailsWith": func(t testing.TB) { FailsWith(t, err, io.EOF) },
			"Works":     func(t testing.TB) { Works(t, map[bool]error{true: io.EOF}[wrong]) },
			"True":      func(t testing.TB) { True(t, !wrong, "it is not") },
		} {
			r := &recorder{TB: t}
			judge(r)
			Equal(t, r.said != "", wrong, "%s says %s", name, r.said)
		}
	}
}
