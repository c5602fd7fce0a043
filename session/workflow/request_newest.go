package workflow

import (
	"slices"

	"deepwork/session/store"
)

// keptNewest is how many session files are searched for a request_id however old
// they are said to be.
const keptNewest = 100

// newestFiles gathers those of many session files that were written last, at most
// keptNewest of them. It holds twice as many at a time, however many there are.
type newestFiles struct{ files []store.Info }

func (n *newestFiles) add(f store.Info) {
	if n.files = append(n.files, f); len(n.files) == 2*keptNewest {
		n.files = n.all()
	}
}

// all returns them, the newest first.
func (n *newestFiles) all() []store.Info {
	slices.SortFunc(n.files, func(a, b store.Info) int { return b.ModTime.Compare(a.ModTime) })
	return n.files[:min(len(n.files), keptNewest)]
}
