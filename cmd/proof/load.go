package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"deepwork/cmd/proof/internal/load"
)

// runLoad is the subcommand load.
func runLoad(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := load.Options{Out: stdout}
	var tokenFile string
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.StringVar(&o.Root, "path", "", "with -url: the `folder` of that server's project, on this machine")
	flags.StringVar(&o.URL, "url", "", "a server that runs, as http://127.0.0.1:8000/mcp (default: start one)")
	flags.StringVar(&tokenFile, "token-file", "", "`file` with the token for that server")
	flags.IntVar(&o.Connections, "connections", 64, "clients at work at once")
	flags.IntVar(&o.Depth, "depth", 8, "sessions in each stack")
	flags.IntVar(&o.Group, "group", 4, "concurrent steps in each workflow")
	flags.DurationVar(&o.Duration, "duration", time.Minute, "for how long work is begun")
	flags.IntVar(&o.Sessions, "sessions", 0, "after how many sessions no more are begun; 0 is no limit")
	flags.IntVar(&o.Servers, "servers", 1, "servers on the project, 1 or 2; with 2, work moves between them")
	flags.BoolVar(&o.Edit, "edit", false, "save every job file ten times a second meanwhile")
	flags.Float64Var(&o.Lose, "lose", 0, "part of the replies that are lost, 0 to 0.5; the calls are repeated")
	flags.BoolVar(&o.Stateless, "stateless", false, "speak the newest protocol, which has no sessions")
	flags.BoolVar(&o.Bench, "bench", false, "compare throughput with the bare SDK's and the disk's")
	flags.BoolVar(&o.Strict, "strict", false, "fail, too, where a figure misses its bound")
	flags.IntVar(&o.Idle, "idle", 0, "measure so many connections that do nothing, and nothing else")
	flags.Uint64Var(&o.Seed, "seed", 0, "makes the choices; 0 takes one from the clock")
	err := parse(flags, args, stderr, func() error {
		switch {
		case o.URL == "" && (o.Root != "" || tokenFile != ""):
			return errors.New("--token-file and --path go with --url; give it, or leave them out")
		case o.URL != "" && o.Root == "":
			o.Root = "."
		}
		return o.Check()
	})
	if err != nil {
		return err
	}
	if tokenFile != "" {
		data, err := os.ReadFile(tokenFile)
		if err != nil {
			return fmt.Errorf("reading the token: %w", err)
		}
		o.Token = strings.TrimSpace(string(data))
	}
	temp, err := os.MkdirTemp("", "deepwork-proof-")
	if err != nil {
		return fmt.Errorf("making a folder for the program: %w", err)
	}
	defer os.RemoveAll(temp)
	if o.Self, err = os.Executable(); err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if o.URL == "" || o.Idle > 0 {
		if o.Program, err = build(ctx, temp); err != nil {
			return err
		}
	}
	o.Env = []string{"DEEPWORK_ADDITIONAL_JOBS_FOLDERS="} // the project's own jobs alone
	return load.Run(ctx, o)
}
