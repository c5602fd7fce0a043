package definition

import (
	"strconv"
	"testing"

	"deepwork/actor/testkit"
)

func TestOnlySoManyDefinitionsAreRemembered(t *testing.T) {
	d := &Store{MaxKnown: 3}
	for i := range 20 {
		hash := strconv.Itoa(i)
		d.learn(hash, map[string]string{"one": "Do one."})
		n := len(d.known)
		testkit.Need(t, n <= d.MaxKnown && d.known[hash] != nil, "after %d definitions %d are remembered, at most %d and the newest are to be", i+1, n, d.MaxKnown)
	}
}
