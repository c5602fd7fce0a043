package page

import (
	"net/url"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
)

// What an action says is shown to its caller alone, and no link makes a page say anything else.
func TestNotices(t *testing.T) {
	s, ann := &Site{Options: Options{Key: []byte("key")}}, session.Caller{Identity: "ann"}
	next, err := url.Parse(s.said(ann, "/board?project=p", "Done & merged."))
	testkit.Must(t, err)
	given := next.Query().Get("notice")
	if got := s.notice(ann, next.Query()); got != "Done & merged." || next.Query().Get("project") != "p" {
		t.Errorf("%s shows %q", next, got)
	}
	for _, forged := range []string{"", "x", given[:2*signature], given + "x", "x" + given[1:]} {
		if got := s.notice(ann, url.Values{"notice": {forged}}); got != "" {
			t.Errorf("%q shows %q", forged, got)
		}
	}
	if got := s.notice(session.Caller{Identity: "bob"}, next.Query()); got != "" {
		t.Errorf("another caller is shown %q", got)
	}
	if s.said(ann, "/board", "") != "/board" {
		t.Error("nothing to say is said")
	}
}
