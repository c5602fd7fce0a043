package show

import "testing"

func TestReviewerAsTyped(t *testing.T) {
	for pinned, want := range map[string]string{`["./review.sh","--strict"]`: "./review.sh --strict", "self": "self", "": ""} {
		if got := asTyped(pinned); got != want {
			t.Errorf("%q: %q, want %q", pinned, got, want)
		}
	}
}
