package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"deepwork/cmd/deepwork/internal/load"
	"deepwork/transport"
)

func (a *app) loadCommand() *cobra.Command {
	var o load.Options
	var tokenFile string
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Put a load of many agents on a server, and check what comes of it",
		Long: `Put a load of many agents on a server, and check what comes of it.

Each connection is a real MCP client over streamable HTTP that builds stacks of
sessions, finishes concurrent steps in parallel, goes back, aborts, and crashes
now and then. With --edit an editor saves every job file ten times a second in all
the ways editors save. At the end the session files must tell exactly what was
acknowledged; whatever is wrong is told, with an example, and the command fails.

It starts servers of its own on a temporary project. With --url it uses one that
runs; --path is then the project of that server, on this machine, where jobs
named load_0 to load_3 are laid out and removed again; the sessions stay.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if given := cmd.Flags().Changed; o.URL == "" && (given("token-file") || given("path")) {
				return usagef(cmd, "--token-file and --path go with --url; give it, or leave them out")
			}
			if o.URL != "" {
				root, err := a.projectRoot()
				if err != nil {
					return err
				}
				o.Root = root
			}
			if err := o.Check(); err != nil {
				return usagef(cmd, "%v", err)
			}
			return a.load(o, tokenFile)
		},
	}
	a.pathFlag(cmd)
	flags := cmd.Flags()
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
	return cmd
}

// load runs the load until it is over or a signal comes.
func (a *app) load(o load.Options, tokenFile string) error {
	ctx, stop := interruptible(context.Background(), 0)
	defer stop()
	var err error
	if o.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if tokenFile != "" {
		data, err := os.ReadFile(tokenFile)
		if err != nil {
			return fmt.Errorf("reading the token: %w", err)
		}
		o.Token = strings.TrimSpace(string(data))
	}
	o.Env = []string{transport.AdditionalJobsEnv + "="} // the project's own jobs alone
	o.Out = a.out
	err = load.Run(ctx, o)
	if errors.Is(err, load.ErrWrong) {
		return &reportedError{}
	}
	return err
}

// loadEchoCommand is what throughput is compared with; `deepwork load` starts it.
func loadEchoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    load.EchoCommand,
		Short:  "Serve the echo tool that load is compared with",
		Long:   "Serve the echo tool that load is compared with.\n\"deepwork load\" starts this command; it is of no use by itself.",
		Hidden: true,
		Args:   takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := interruptible(context.Background(), 0)
			defer stop()
			return load.Echo(ctx, a.out)
		},
	}
}
