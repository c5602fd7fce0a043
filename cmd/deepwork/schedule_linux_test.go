package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/schedule"
	"deepwork/session/state"
	"deepwork/session/store/local"
)

// schedule calls deepwork schedule, and returns what it printed to stdout and to stderr.
func (p *runProject) schedule(code int, args ...string) (out, said string) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "deepwork", append(append([]string{"schedule"}, args...), "--path",
		p.root)...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	testkit.Need(p.t, cmd.ProcessState.ExitCode() == code, "%v: exit code %d, want %d\n%s%s", args,
		cmd.ProcessState.ExitCode(), code, &stdout, &stderr)
	return stdout.String(), stderr.String()
}

// due lets a schedule be due now, as if it had been added earlier.
func (p *runProject) due(name string) {
	p.t.Helper()
	stores := local.Stores(state.Of(p.root), false, nil)
	rows := stores.Database.Schedules()
	for _, s := range testkit.Get(rows.States(p.t.Context())).Must(p.t) {
		if s.Name == name {
			must(p.t, rows.Remove(p.t.Context(), s.ID))
			s.Next = time.Now().Truncate(time.Minute)
			must(p.t, rows.Add(p.t.Context(), &s.Schedule))
		}
	}
	must(p.t, stores.Close(context.Background()))
}

func TestScheduleCommands(t *testing.T) {
	p := newRunProject(t, "run: {executor: STEPPER}\n", runJob("job0", "one", "one"))
	out, _ := p.schedule(0, "list")
	testkit.Equal(t, out, "There are no schedules; 'deepwork schedule add' adds one.\n")
	out, said := p.schedule(0, "add", "weekly", "0 9 * * mon", "job0/w", "--goal", "Notes of {date}", "--zone",
		"Europe/Berlin", "--overlap", "queue_one")
	testkit.ContainsAll(t, strings.ReplaceAll(out, "  ", ""),
		[]string{"schedule:weekly\n", "cron:0 9 * * mon\n", "zone:Europe/Berlin\n"})
	due := regexp.MustCompile(`(?m)^due: +(\S+)$`).FindAllStringSubmatch(out, -1)
	testkit.Need(t, len(due) == 5, "five times are printed: %s", out)
	for _, d := range due {
		at := testkit.Get(time.Parse(time.RFC3339, d[1])).Must(t)
		testkit.True(t, at.After(time.Now()) && at.Weekday() == time.Monday && at.Hour() == 9, "due at %v", at)
	}
	const nothingFires = "deepwork: note: no server of this project runs, so only a timer starts what is due: " +
		"'deepwork serve' or 'deepwork ui' is a server, 'deepwork schedule timer' prints a timer\n"
	testkit.Equal(t, said, nothingFires)

	out, said = p.schedule(0, "list")
	testkit.Equal(t, strings.Fields(strings.SplitAfter(out, "\n")[1])[1], due[0][1], "next, of the list: %s", out)
	testkit.Equal(t, said, nothingFires)
	p.schedule(0, "pause", "weekly")
	out, _ = p.schedule(0, "show", "weekly")
	testkit.ContainsAll(t, out, []string{" paused\n", " queue_one\n", " Notes of {date}\n", "None was due yet.\n"})
	p.schedule(0, "resume", "weekly")
	out, _ = p.schedule(0, "show", "weekly", "--json")
	var v schedule.View
	must(t, json.Unmarshal([]byte(out), &v))
	testkit.Equal(t, *v.Next+" "+v.State, due[0][1]+" active")

	for args, want := range map[string]string{
		"add weekly|@daily|job0/w|--goal|g": `there is a schedule "weekly" already`,
		"pause none":                        `there is no schedule "none"; 'deepwork schedule list' lists them`,
	} {
		first, rest, _ := strings.Cut(args, " ")
		_, said := p.schedule(1, append([]string{first}, strings.Split(rest, "|")...)...)
		testkit.Contains(t, said, want)
	}
	for args, want := range map[string]string{
		"@daily|job0/w":                           "--goal is missing",
		"0 9 30 2 *|job0/w|--goal|g":              "30 2",
		"@daily|job0|--goal|g":                    `"job0" is not JOB/WORKFLOW`,
		"@daily|job0/w|--goal|{week}":             "the goal has {week}; only {date} and {due} are replaced",
		"@daily|job0/w|--goal|g|--zone|Nowhere/X": "Nowhere/X",
		"@daily|job0/w|--goal|g|--overlap|queue":  `--overlap is "queue"; expected `,
		"@daily|job0/w|--goal|g|--catch-up|none":  `--catch-up is "none"; expected `,
		"@daily|job0/w|--goal|g|--window|0s":      "--window must be above 0",
		"@daily|job0/w|--goal|g|--pause-after|-1": "--pause-after from 0 to 100",
		"@daily|job0/none|--goal|g":               "none",
	} {
		_, said := p.schedule(2, append([]string{"add", "other"}, strings.Split(args, "|")...)...)
		testkit.Contains(t, said, want)
	}
	_, said = p.schedule(2, "run")
	testkit.Contains(t, said, "name a schedule, or add --due")
	_, said = p.schedule(2, "run", "weekly", "--due")
	testkit.Contains(t, said, `--due is for all schedules; leave "weekly" out`)
	p.schedule(0, "rm", "weekly")
	p.schedule(1, "show", "weekly")
}

// A timer's command starts what is due and waits for it. Its exit code says what became of it.
func TestScheduleRunDue(t *testing.T) {
	p := newRunProject(t, "run: {executor: STEPPER, retries: 0}\n", runJob("job0", "one", "one"))
	p.plan("one write one.md text", "one finish", "one exit 1")
	p.schedule(0, "add", "nightly", "@daily", "job0/w", "--goal", "Do it", "--in-place")
	out, _ := p.schedule(0, "run", "--due")
	testkit.Equal(t, out, "")

	p.due("nightly")
	out, _ = p.schedule(0, "run", "--due")
	id := regexp.MustCompile(`^started ([0-9a-f]{8})\n([0-9a-f]{8}) completed\n$`).FindStringSubmatch(out)
	testkit.Need(t, id != nil && id[1] == id[2], "run --due: %s", out)
	out, _ = p.schedule(0, "show", "nightly")
	testkit.True(t, regexp.MustCompile(`(?m) completed +`+id[1]).MatchString(out), "show: %s", out)
	out, said := p.schedule(0, "run", "--due")
	testkit.Equal(t, out+said, "")

	p.plan("one exit 1")
	p.due("nightly")
	out, said = p.schedule(1, "run", "--due")
	testkit.Contains(t, out, " failed\n")
	testkit.Equal(t, said, "")

	config := readAll(p.root, ".deepwork/config.yml")
	testkit.Write(t, p.root+"/.deepwork/config.yml", "executors: {}\n")
	p.due("nightly")
	out, said = p.schedule(1, "run", "--due")
	testkit.Equal(t, out, "")
	testkit.Contains(t, said, "firing the schedule nightly: ")
	testkit.Equal(t, strings.Count(said, "\n"), 1, "lines: %s", said)
	testkit.Write(t, p.root+"/.deepwork/config.yml", config)
	p.plan("one write one.md text", "one finish")
	out, _ = p.schedule(0, "run", "--due")
	testkit.Contains(t, out, " completed\n")
}

// A timer has the folder of the project, and installs nothing.
func TestScheduleTimer(t *testing.T) {
	p := newRunProject(t, "", runJob("job0", "one", "one"))
	for kind, wants := range map[string][]string{
		"systemd": {"KillMode=process", "WorkingDirectory=" + p.root,
			`"schedule" "run" "--due" "--path" "` + p.root + `"`, "OnCalendar=*:0/5", "Persistent=true",
			"systemctl --user daemon-reload"},
		"launchd": {"<key>StartInterval</key><integer>300</integer>", "<string>" + p.root + "</string>",
			"<string>--due</string>", "AbandonProcessGroup"},
		"crontab": {"\n*/5 * * * * cd '" + p.root + "' && PATH='",
			"'schedule' 'run' '--due' '--path' '" + p.root + "'\n"},
	} {
		out, said := p.schedule(0, "timer", "--kind", kind)
		testkit.ContainsAll(t, out, wants, kind)
		testkit.Equal(t, said, "", kind)
	}
	_, said := p.schedule(2, "timer", "--kind", "at")
	testkit.Contains(t, said, `--kind is "at"; expected systemd, launchd or crontab`)
}
