package jsontext

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	candidates := []string{"draft", "review", "max_items", "ok"}
	for name, want := range map[string]string{
		"draft": "draft", "darft": "draft", "drafts": "draft", "dra": "", "d": "", "reviwe": "review", "Max-Items": "max_items",
		"maxitem": "max_items", "okay": "ok", "kk": "ok", "no": "", strings.Repeat("x", 65): "",
	} {
		if got := Nearest(name, candidates); got != want {
			t.Errorf("%.20s: %q, want %q", name, got, want)
		}
	}
}
