package session

import (
	"log/slog"
	"math"
	"time"
)

// TookMS returns the attribute of a log line for how long something took: took_ms, in milliseconds
// with up to three decimals, so that a program reads it without parsing a unit.
func TookMS(d time.Duration) slog.Attr { return MS("took_ms", d) }

// MS is TookMS with another name, which should end in _ms.
func MS(name string, d time.Duration) slog.Attr {
	return slog.Float64(name, math.Round(float64(d)/float64(time.Microsecond))/1000)
}
