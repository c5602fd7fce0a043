package sqlstore_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"deepwork/actor/testkit"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A result is what a call returned.
type result[T any] struct {
	value T
	err   error
}

func returned[T any](v T, err error) result[T] { return result[T]{v, err} }

// of returns the value of a call that must succeed.
func (r result[T]) of(t testing.TB) T {
	t.Helper()
	testkit.Must(t, r.err)
	return r.value
}

// is checks what a call returns that must succeed.
func is[T any](t testing.TB, want T, what ...any) func(T, error) {
	return func(got T, err error) {
		t.Helper()
		testkit.Must(t, err)
		equal(t, append(what, got, want)...)
	}
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

// fails checks that a call has failed with an error.
func fails(t testing.TB, err, want error, what ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%sthe error is %v, want %v", fmt.Sprintln(what...), err, want)
	}
}

// says checks that a call has failed with an error that contains a text.
func says(t testing.TB, err, want error, text string, what ...any) {
	t.Helper()
	fails(t, err, want, what...)
	if !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("%sthe error is %v, want one with %q", fmt.Sprintln(what...), err, text)
	}
}

// equal reports how values differ, field by field, from those that are wanted: each pair is one that the test got and
// the one that it wants. What they are about may precede them.
func equal(t testing.TB, pairs ...any) {
	t.Helper()
	what := ""
	if len(pairs)%2 == 1 {
		what, pairs = fmt.Sprint(pairs[0])+": ", pairs[1:]
	}
	for i := 0; i < len(pairs); i += 2 {
		got, want := pairs[i], pairs[i+1]
		testkit.Equal(t, difference(got, want), "", "%svalue %d of %d (-want +got)", what, i/2+1, len(pairs)/2)
	}
}

// difference compares a value with one that is wanted: a pointer with a value or nil, too, and any type with a constant.
func difference(got, want any) string {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	if g.Kind() == reflect.Pointer && !g.IsNil() && w.IsValid() && w.Kind() != reflect.Pointer {
		g = g.Elem()
		got = g.Interface()
	}
	switch {
	case !w.IsValid() && g.IsValid() && (g.Kind() == reflect.Pointer || g.Kind() == reflect.Slice) && g.IsNil():
		return ""
	case g.IsValid() && w.IsValid() && g.Type() != w.Type() && w.CanConvert(g.Type()) && g.Kind() != reflect.Pointer:
		want = w.Convert(g.Type()).Interface()
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Exporter(func(reflect.Type) bool { return true }))
}
