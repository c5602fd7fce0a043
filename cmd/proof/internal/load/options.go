// Package load is what `deepwork load` runs: many real MCP clients that work on a
// server at once, an editor that saves the jobs meanwhile, and a judge that
// compares every session file with what the clients were told.
package load

import (
	"cmp"
	"fmt"
	"io"
	"time"
)

// Options say what load is put on a server. The zero value of a number is its
// default where one is named.
type Options struct {
	// Self is the binary that serves echoes when it is run as EchoCommand.
	Self string
	// Program is the deepwork binary that is served from; the servers of a run
	// and the echo servers it is compared with are its children.
	Program string
	// Env is added to the environment of the children, as NAME=value.
	Env []string
	// Root is the project; "" makes one in a temporary folder and removes it.
	Root string
	// URL is a server that runs already, on the project at Root; "": Servers are
	// started, on free ports of loopback.
	URL string
	// Token is sent to that server; "" for none.
	Token string
	// Connections is how many clients work at once; default 64.
	Connections int
	// Depth is how many sessions deep each one's stack gets; default 8.
	Depth int
	// Group is how many steps run concurrently in each workflow; default 4.
	Group int
	// Duration is for how long work is begun; default 60 s.
	Duration time.Duration
	// Sessions is after how many sessions no more are begun; 0: no limit.
	Sessions int
	// Servers is how many servers run on the folder, 1 or 2; default 1.
	Servers int
	// Edit has an editor save every job file ten times a second.
	Edit bool
	// Lose is the part of the calls whose reply is lost, 0 to 1; they are repeated.
	Lose float64
	// Stateless has the clients speak the newest protocol, which has no sessions.
	Stateless bool
	// Bench measures what throughput is compared with, in the same run.
	Bench bool
	// Idle, if not 0, opens so many connections that do nothing, and measures
	// them; nothing else is done.
	Idle int
	// Seed makes the choices of a run; 0 takes one from the clock.
	Seed uint64
	// Out gets the report.
	Out io.Writer
	// Strict makes figures that miss their bounds wrong, where they are measured.
	Strict bool
}

// most is how many connections there may be.
const most = 10_000

// Check tells what of the options makes no sense, as the command line has them.
func (o Options) Check() error {
	_, err := o.withDefaults()
	return err
}

// withDefaults fills in what is not given and refuses what makes no sense.
func (o Options) withDefaults() (Options, error) {
	o.Connections = cmp.Or(o.Connections, 64)
	o.Depth = cmp.Or(o.Depth, 8)
	o.Group = cmp.Or(o.Group, 4)
	o.Duration = cmp.Or(o.Duration, time.Minute)
	o.Servers = cmp.Or(o.Servers, 1)
	o.Seed = cmp.Or(o.Seed, uint64(time.Now().UnixNano()))
	switch {
	case o.Idle == 0 && o.Stateless && o.Servers > 1:
		return o, fmt.Errorf("--stateless and --servers 2 do not go together: work moves when a connection ends, and there is none")
	case o.Sessions < 0:
		return o, fmt.Errorf("--sessions %d: it is the number of sessions, or 0", o.Sessions)
	case o.Connections < 1 || o.Connections > most:
		return o, fmt.Errorf("--connections %d: 1 to %d are possible", o.Connections, most)
	case o.Depth < 1 || o.Depth > 64:
		return o, fmt.Errorf("--depth %d: 1 to 64 is possible", o.Depth)
	case o.Group < 1 || o.Group > 16:
		return o, fmt.Errorf("--group %d: 1 to 16 are possible", o.Group)
	case o.Duration < 0:
		return o, fmt.Errorf("--duration %v: it is to be positive", o.Duration)
	case o.Servers != 1 && o.Servers != 2:
		return o, fmt.Errorf("--servers %d: 1 or 2 are possible", o.Servers)
	case o.Lose < 0 || o.Lose > 0.5:
		return o, fmt.Errorf("--lose %v: 0 to 0.5 is possible", o.Lose)
	case o.URL != "" && o.Servers != 1:
		return o, fmt.Errorf("--url and --servers 2 do not go together: of a server that runs already there is one")
	case o.URL != "" && o.Root == "" && o.Idle == 0:
		return o, fmt.Errorf("--path names no project of the server at %s: jobs are laid out there, and session files read", o.URL)
	case o.Idle < 0 || o.Idle > 50_000:
		return o, fmt.Errorf("--idle %d: 1 to 50000 are possible", o.Idle)
	}
	return o, nil
}
