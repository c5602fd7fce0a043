package definition

import (
	"strconv"
	"testing"
)

func TestOnlySoManyDefinitionsAreRemembered(t *testing.T) {
	d := &Store{MaxKnown: 3}
	for i := range 20 {
		hash := strconv.Itoa(i)
		d.learn(hash, map[string]string{"one": "Do one."})
		if n := len(d.known); n > d.MaxKnown || d.known[hash] == nil {
			t.Fatalf("after %d definitions %d are remembered, at most %d and the newest are to be", i+1, n, d.MaxKnown)
		}
	}
}
