package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/actor/wait"
)

func TestForWaitsForTheTimeOrTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		testkit.Works(t, wait.For(t.Context(), 3*time.Second))
		testkit.Equal(t, time.Since(began), 3*time.Second)

		reason := errors.New("the caller left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(reason) })
		began = time.Now()
		testkit.Equal(t, wait.For(ctx, time.Hour), reason, "a context that ends")
		testkit.Equal(t, time.Since(began), time.Second)
		testkit.Equal(t, wait.For(ctx, 0), reason, "For(0) with an ended context =")
	})
}

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	b := wait.Backoff{Min: 10 * time.Millisecond, Max: 80 * time.Millisecond}
	for _, most := range []time.Duration{10, 20, 40, 80, 80} {
		got := b.Next()
		testkit.True(t, got <= most*time.Millisecond && got >= most*time.Millisecond/2,
			"Next() = %v, want at most %d ms, and at least half", got, most)
	}

	b.Reset()
	got := b.Next()
	testkit.True(t, got <= 10*time.Millisecond, "Next() after Reset() = %v, want at most 10ms", got)
}

func TestSignalKeepsOneWake(t *testing.T) {
	s := wait.NewSignal()
	s.Wake()
	s.Wake()
	<-s
	testkit.Equal(t, len(s), 0, "two calls of Wake were received as two")
}
