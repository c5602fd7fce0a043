package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"deepwork/session/state/statetest"
)

// runSim is the subcommand sim: a fleet of machines, or one folder with so many servers.
func runSim(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var (
		given  = newFleet("", 0, 0, 0)
		folder int
	)
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	flags.IntVar(&given.count, "machines", 3, "machines, each with a server")
	flags.IntVar(&folder, "folder", 0, "simulate one folder with so many servers instead of machines, with a disk and clocks that fail")
	flags.Uint64Var(&given.seed, "seed", 0, "makes the choices; 0 takes one from the clock")
	flags.IntVar(&given.operations, "operations", 0, "end after so many answered calls, even before the duration is over; 0 means no bound")
	flags.DurationVar(&given.length, "duration", time.Minute, "for how long clients work")
	flags.IntVar(&given.clients, "clients", 48, "clients at work at once")
	flags.BoolVar(&given.plain, "plain", false, "start no agents on machines")
	flags.BoolVar(&given.pooler, "pooler", false, "put PgBouncer in transaction mode before the database of machines")
	err := parse(flags, args, stderr, func() error {
		if given.count < 1 || folder < 0 {
			return errors.New("--machines is at least 1, and --folder not below 0")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if given.seed == 0 {
		given.seed = uint64(time.Now().UnixNano())
	}
	dir, err := os.MkdirTemp("", "deepwork-sim-")
	if err != nil {
		return err
	}
	f := newFleet(dir, given.seed, given.length, given.clients)
	f.count, f.operations, f.plain, f.pooler = given.count, given.operations, given.plain, given.pooler
	var s interface {
		simulate(context.Context) error
		String() string
	} = f
	if folder > 0 {
		if err := statetest.Prepare(filepath.Join(dir, "user"), dir); err != nil { // its state is kept with the rest
			return err
		}
		alone := newSimulation(dir, given.seed, given.length, given.clients)
		alone.count, alone.operations = folder, given.operations
		f.simulation, s = alone, alone
	}
	if err := s.simulate(ctx); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	fmt.Fprintln(stdout, s)
	n, what := f.history.found()
	if n == 0 {
		return os.RemoveAll(dir)
	}
	fmt.Fprintf(stdout, "%s\nThe project and the servers' logs are in %s.\n", what, dir)
	return errWrong
}
