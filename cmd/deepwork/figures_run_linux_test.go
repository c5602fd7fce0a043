package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/attempt/runner"
)

// goBuild builds a program of the project.
func goBuild(b testing.TB, name, source string) string {
	b.Helper()
	built := filepath.Join(b.TempDir(), name)
	out, err := exec.CommandContext(b.Context(), "go", "build", "-o", built, source).CombinedOutput()
	testkit.Need(b, err == nil, "%v\n%s", err, out)
	return built
}

// quickProject makes a project in git with the workflow job0/main of n steps, and the executor QUICK.
func quickProject(b testing.TB, n int, quick, config string) string {
	b.Helper()
	var ids []string
	workflow := ""
	for i := range n {
		ids = append(ids, fmt.Sprintf("s%d outputs: {}", i))
		workflow += fmt.Sprintf("s%d, ", i)
	}
	root := filepath.Join(b.TempDir(), "shop")
	writeFiles(b, root, map[string]string{
		"README": "hello\n", ".deepwork/jobs/job0/job.yml": strings.Replace(runJob("job0", workflow, ids...), "name: w,", "name: main,", 1), ".deepwork/jobs/job0/a.md": "Do it.",
		".deepwork/config.yml": fmt.Sprintf("executors:\n  QUICK: {command: [%q]}\n%s", quick, config),
	})
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "first"}} {
		testkit.Git(b, root, args...)
	}
	return root
}

// BenchmarkRunSteps compares a run of 100 steps, whose agents do nothing but finish them, with the sum of
// what it cannot do without: such agents, each started by its shim, that finish the steps of a session of
// a server, one after the other. Wanted: at most 1.2.
func BenchmarkRunSteps(b *testing.B) {
	const steps = 100
	built, quick := goBuild(b, "deepwork", "."), goBuild(b, "quick", "./testdata/quick")
	root := quickProject(b, steps, quick, "")
	_, url, log := serveNetwork(b, root, "--transport", "http")
	go io.Copy(io.Discard, log)
	server := &program{ClientSession: connectNetwork(b, url, "")}
	env := func(id string, i int) []string {
		return []string{config.MCPURLEnv + "=" + url, config.SessionEnv + "=" + id, fmt.Sprintf("%s=s%d", config.StepEnv, i)}
	}
	each := func(one func(id string, i int) error) time.Duration {
		b.Helper()
		id := testkit.Get(server.start("job0")).Must(b)
		began := time.Now()
		for i := range steps {
			must(b, one(id, i))
		}
		return time.Since(began)
	}
	top := b.TempDir()
	shims := runner.Runner{Shim: []string{built, runner.ShimCommand}}
	var bare, shimmed, run []time.Duration
	for b.Loop() {
		bare = append(bare, each(func(id string, i int) error {
			cmd := exec.CommandContext(b.Context(), quick)
			cmd.Env = append(os.Environ(), env(id, i)...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}))
		shimmed = append(shimmed, each(func(id string, i int) error {
			dir := filepath.Join(top, fmt.Sprintf("%s-%d", id, i))
			p, err := shims.Start(b.Context(), runner.Spec{Dir: dir, Log: filepath.Join(top, fmt.Sprintf("%s-%d-log", id, i)), Command: []string{quick}, Work: root, Env: env(id, i)})
			if err != nil {
				return err
			}
			exit, err := p.Wait(b.Context())
			if err == nil && exit.Code != 0 {
				err = fmt.Errorf("%+v", exit)
			}
			return err
		}))
		cmd := exec.CommandContext(b.Context(), built, "run", "job0/main", "--goal", "Nothing", "--executor", "QUICK", "--json", "--path", root)
		cmd.Env = process.With(os.Environ(), "DEEPWORK_ADDITIONAL_JOBS_FOLDERS=")
		began := time.Now()
		out, err := cmd.CombinedOutput()
		run = append(run, time.Since(began))
		testkit.Need(b, err == nil && bytes.Count(out, []byte(`"step_ended"`)) == steps, "%v\n%s", err, out)
	}
	ms := func(d []time.Duration) float64 { return median(d) / 1e3 / steps }
	b.ReportMetric(ms(bare), "bare-ms")
	b.ReportMetric(ms(shimmed), "shim-ms")
	b.ReportMetric(ms(run), "run-ms")
	b.ReportMetric(ms(run)/ms(shimmed), "ratio(<=1.2)")
	b.ReportMetric(ms(run)/ms(bare), "of-bare")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkShimStart compares the start of the shim of an agent, as far as it is the same for all, with
// that of a Go program that does nothing. Wanted: at most 2. What a Go program of this size needs before
// its first own statement takes most of it.
func BenchmarkShimStart(b *testing.B) {
	built, empty := goBuild(b, "deepwork", "."), goBuild(b, "empty", "./testdata/empty")
	dir := b.TempDir() // has nothing to run
	timed := func(program string, args ...string) time.Duration {
		began := time.Now()
		must(b, exec.CommandContext(b.Context(), program, args...).Run())
		return time.Since(began)
	}
	var bare, shim []time.Duration
	for b.Loop() {
		bare = append(bare, timed(empty))
		shim = append(shim, timed(built, runner.ShimCommand, dir))
	}
	b.ReportMetric(median(bare)/1e3, "empty-ms")
	b.ReportMetric(median(shim)/1e3, "shim-ms")
	b.ReportMetric(median(shim)/median(bare), "ratio(<=2)")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRunMemory compares the memory of a server after it has led 50 runs with that after 10. Wanted: at
// most 1.1.
func BenchmarkRunMemory(b *testing.B) {
	built := goBuild(b, "deepwork", ".")
	root := quickProject(b, 3, goBuild(b, "quick", "./testdata/quick"), "")
	var ratios, tens, fifties []float64
	for b.Loop() {
		server := startProgram(b, built, "serve", "--path", root, "--toolsets", "board")
		var used []float64
		for range 50 {
			awaitRun(b, server.ClientSession, startRun(b, server.ClientSession, map[string]any{"job_name": "job0", "workflow_name": "main", "goal": "Nothing", "executor": "QUICK"}))
			used = append(used, residentMB(b, server.pid))
		}
		server.Close()
		tens, fifties = append(tens, used[9]), append(fifties, used[49])
		ratios = append(ratios, used[49]/used[9])
	}
	b.ReportMetric(slices.Max(ratios), "growth(<=1.1)")
	b.ReportMetric(slices.Max(tens), "ten-MB")
	b.ReportMetric(slices.Max(fifties), "fifty-MB")
	b.ReportMetric(0, "ns/op")
}
