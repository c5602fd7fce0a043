package workflow

import (
	"slices"

	"deepwork/session/workflow/filestore"
)

// keptNewest is how many session files are searched for a request_id however old
// they are said to be.
const keptNewest = 100

// newestFiles gathers those of many session files that were written last, at most
// keptNewest of them. It holds twice as many at a time, however many there are.
type newestFiles struct{ files []filestore.Info }

func (n *newestFiles) add(f filestore.Info) {
	if n.files = append(n.files, f); len(n.files) == 2*keptNewest {
		n.files = n.all()
	}
}

// all returns them, the newest first.
func (n *newestFiles) all() []filestore.Info {
	slices.SortFunc(n.files, func(a, b filestore.Info) int { return b.ModTime.Compare(a.ModTime) })
	return n.files[:min(len(n.files), keptNewest)]
}
