package session

import (
	"fmt"
	"log/slog"
	"math"
	"time"
)

// Clock is the default clock of the engines of sessions, runs and attempts. Only fault simulations replace
// it, in their own binary, before they open the first engine.
var Clock = time.Now

// Ago formats a duration in its largest unit: 12s, 5m, 3h, 9d. A negative one is 0s.
func Ago(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// TookMS returns the log attribute took_ms for how long something took: milliseconds with up to three
// decimals, which a program can read without parsing a unit.
func TookMS(d time.Duration) slog.Attr { return MS("took_ms", d) }

// MS is TookMS with another name, which should end in _ms.
func MS(name string, d time.Duration) slog.Attr {
	return slog.Float64(name, math.Round(float64(d)/float64(time.Microsecond))/1000)
}
