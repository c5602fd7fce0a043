package show

import (
	"testing"

	"deepwork/actor/testkit"
)

func TestReviewerAsTyped(t *testing.T) {
	for pinned, want := range map[string]string{`["./review.sh","--strict"]`: "./review.sh --strict", "self": "self", "": ""} {
		testkit.Equal(t, asTyped(pinned), want, "%q", pinned)
	}
}
