// Package timer prints what makes an operating system run a command every five minutes. It installs nothing.
package timer

import (
	"fmt"
	"html"
	"strings"
)

// Kinds are the values of Text's kind: for systemd, for macOS, and for cron.
var Kinds = []string{"systemd", "launchd", "crontab"}

// A Command is what runs: its program and arguments, in a folder, with the PATH in which it finds agents.
type Command struct {
	Name string // of the timer: letters, digits and hyphens
	Args []string
	Dir  string
	Path string
}

// Text returns the files of a timer, or the line for cron.
func Text(kind string, c Command) string {
	switch kind {
	case "launchd":
		args := ""
		for _, a := range c.Args {
			args += "\n    <string>" + html.EscapeString(a) + "</string>"
		}
		return fmt.Sprintf(launchd, c.Name, args, html.EscapeString(c.Dir), html.EscapeString(c.Path))
	case "crontab":
		words := []string{"PATH=" + inShell(c.Path)}
		for _, a := range c.Args {
			words = append(words, inShell(a))
		}
		line := "cd " + inShell(c.Dir) + " && " + strings.Join(words, " ")
		return "# add this line with: crontab -e\n*/5 * * * * " + strings.ReplaceAll(line, "%", `\%`) + "\n"
	}
	var args []string
	for _, a := range c.Args {
		args = append(args, inUnit(strings.ReplaceAll(a, "$", "$$")))
	}
	return fmt.Sprintf(systemd, c.Name, strings.ReplaceAll(c.Dir, "%", "%%"), inUnit("PATH="+c.Path),
		strings.Join(args, " "))
}

func inUnit(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(s) + `"`
}

func inShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// KillMode=process: a run that outlives the command, or agents of a server, are not ended with it.
const systemd = `# ~/.config/systemd/user/%[1]s.service
[Unit]
Description=Runs of deepwork that are due

[Service]
Type=oneshot
WorkingDirectory=%[2]s
Environment=%[3]s
ExecStart=%[4]s
KillMode=process

# ~/.config/systemd/user/%[1]s.timer
[Unit]
Description=Look for runs of deepwork that are due

[Timer]
OnCalendar=*:0/5
Persistent=true

[Install]
WantedBy=timers.target

# Then run: systemctl --user daemon-reload && systemctl --user enable --now %[1]s.timer
# So that it also runs while you are logged out: loginctl enable-linger
`

const launchd = `<?xml version="1.0" encoding="UTF-8"?>
<!-- ~/Library/LaunchAgents/%[1]s.plist; then run: launchctl load ~/Library/LaunchAgents/%[1]s.plist -->
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>%[1]s</string>
  <key>ProgramArguments</key>
  <array>%[2]s
  </array>
  <key>WorkingDirectory</key><string>%[3]s</string>
  <key>EnvironmentVariables</key><dict><key>PATH</key><string>%[4]s</string></dict>
  <key>StartInterval</key><integer>300</integer>
  <key>AbandonProcessGroup</key><true/>
</dict>
</plist>
`
