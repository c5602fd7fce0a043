//go:build unix

package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// The agents of attempts are a shell script. What it is to do stands in its
// prompt, in a line of its own; what it does it writes into a log that all agents
// share, each line in one piece.

// An order is what one execution of an agent is told. Its token is in no other.
type order struct {
	token  string
	rests  int  // milliseconds
	exit   int  // its exit code
	commit bool // what it has written; else that stays in the worktree
}

// prefix begins the line of a prompt that is an order.
const prefix = "sim-order"

func newOrder(token string, r *rand.Rand) order {
	o := order{token: token, rests: r.IntN(300), commit: r.IntN(3) == 0}
	if r.IntN(5) == 0 {
		o.exit = failing
	}
	return o
}

// failing is the exit code of agents that are to fail.
const failing = 3

func (o order) String() string {
	commit := 0
	if o.commit {
		commit = 1
	}
	return fmt.Sprintf("%s %s 0.%03d %d %d", prefix, o.token, o.rests, o.exit, commit)
}

// tokenIn is the token of a prompt's order, "" where it has none. A follow-up's
// prompt has one, the first prompt too.
func tokenIn(prompt string) string {
	for line := range strings.Lines(prompt) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == prefix {
			return f[1]
		}
	}
	return ""
}

// agentScript does what an order says: it tells of its start, writes a file of its
// own into the worktree, and tells of that and of its end.
const agentScript = `#!/bin/sh
log=$1
set -- $(grep '^` + prefix + ` ')
echo "start $2 $$" >>"$log"
echo "$2" >"work-$2" || exit 98
echo "wrote $2 $$" >>"$log"
if [ "$5" = 1 ]; then
	git add -A && git -c user.name=Sim -c user.email=sim@example.com commit -q -m "$2"
fi
sleep "$3"
echo "end $2 $$" >>"$log"
echo "done $2"
exit "$4"
`

// work is the file that an agent of this order writes.
func work(token string) string { return "work-" + token }

// An agentLog is what agents have told, by token: how often each.
type agentLog struct{ start, wrote, end map[string]int }

func readAgentLog(path string) (agentLog, error) {
	l := agentLog{map[string]int{}, map[string]int{}, map[string]int{}}
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return l, fmt.Errorf("reading what agents did: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return l, fmt.Errorf("reading what agents did: %s has a line %q", filepath.Base(path), line)
		}
		switch f[0] {
		case "start":
			l.start[f[1]]++
		case "wrote":
			l.wrote[f[1]]++
		case "end":
			l.end[f[1]]++
		}
	}
	return l, nil
}
