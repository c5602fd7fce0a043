package page

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync"

	"deepwork/session"
)

// notices are what actions say about their results. The URL of the page that an action leads to has
// the name of one, so the page shows it with and without a script. The zero value is ready to use.
type notices struct {
	mu  sync.Mutex
	all []notice // the oldest first
}

type notice struct{ name, identity, text string }

// maxNotices is how many notices are kept.
const maxNotices = 200

// said returns the URL of a page that shows a text to the caller, the page alone if the text is "".
func (s *Site) said(who session.Caller, next, text string) string {
	if text == "" {
		return next
	}
	n := notice{rand.Text()[:10], who.Identity, text}
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	s.notices.all = append(s.notices.all[max(0, len(s.notices.all)-maxNotices+1):], n)
	separator := "?"
	if strings.Contains(next, "?") {
		separator = "&"
	}
	return next + separator + "notice=" + n.name
}

// get returns the text of a notice for a caller, "" if there is no such notice.
func (x *notices) get(who session.Caller, name string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.IndexFunc(x.all, func(n notice) bool { return n.name == name && n.identity == who.Identity })
	if i < 0 {
		return ""
	}
	return x.all[i].text
}
