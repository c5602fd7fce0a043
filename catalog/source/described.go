package source

import (
	"crypto/sha256"
	"log/slog"
	"time"

	"deepwork/catalog/jsontext"
)

// maxTexts is how many texts of a workflow are remembered; changes to further ones are not logged.
const maxTexts = 20

// A described workflow is what agents have been told of it: its description and input schema, which
// lead them as instructions do. A source may change them after its user has looked at them.
type described struct {
	now  [sha256.Size]byte
	seen map[[sha256.Size]byte]bool
	at   time.Time // of the last change; zero means none
}

// describes notes what a workflow says of itself now and returns when that last changed since this
// process first listed it; zero means never. Each new text is logged once.
func (o *owner) describes(w *offered, tool string, now time.Time) time.Time {
	key := w.Source + "\x00" + w.ID
	sum := sha256.Sum256([]byte(w.Description + "\x00" + string(w.InputSchema)))
	d := o.texts[key]
	switch {
	case d == nil:
		if len(o.texts) >= maxNames {
			clear(o.texts)
		}
		o.texts[key] = &described{now: sum, seen: map[[sha256.Size]byte]bool{sum: true}}
		return time.Time{}
	case d.now == sum:
		return d.at
	}
	d.now, d.at = sum, now
	if !d.seen[sum] && len(d.seen) < maxTexts {
		d.seen[sum] = true
		o.c.options.Logger.Warn("a source changed the description or the input schema of a tool", slog.String("tool", tool),
			slog.String("source", w.Source), slog.String("workflow", jsontext.Clip(w.ID, 100)), slog.String("description", jsontext.Clip(w.Description, 300)))
	}
	return d.at
}
