//go:build !linux

package contain

import (
	"context"
	"os"
	"runtime"

	"deepwork/actor/process"
)

// Oldest is the first version of bubblewrap that has everything this program uses.
const Oldest = "0.8"

// A Box is one contained program; only Linux has them.
type Box struct {
	Command []string
	Env     []string
	Files   []*os.File
}

func find() (path, version string, err error) {
	return "", "", &Unavailable{Why: "only Linux has what contains them, and this is " + runtime.GOOS,
		Remedy: "Run deepwork on Linux, which WSL 2 is, or set contain: off"}
}

// Open returns an error.
func (p *Plan) Open([]string, func(Refusal)) (*Box, error) {
	_, _, err := find()
	return nil, err
}

// Close does nothing.
func (b *Box) Close() {}

// Run returns an error.
func (p *Plan) Run(context.Context, process.Spec, func(Refusal)) (process.Result, error) {
	_, _, err := find()
	return process.Result{ExitCode: -1}, err
}

// Attach returns an error.
func (p *Plan) Attach(context.Context, []string, func(Refusal)) error {
	_, _, err := find()
	return err
}

// Check returns an *Unavailable.
func Check(context.Context) (*Plan, error) {
	_, _, err := find()
	return nil, err
}
