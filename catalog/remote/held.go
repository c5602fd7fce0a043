package remote

// maxHeld is how many names are remembered of tools. Beyond it those are forgotten
// that no tool has now.
const maxHeld = 100_000

// hold remembers which source has which names; names are of each of all.
func (o *owner) hold(all []*offered, names []string) {
	if len(o.held)+len(all) > maxHeld {
		clear(o.held)
	}
	for i, w := range all {
		if names[i] != "" {
			o.held[names[i]] = w.Source
		}
	}
}
