package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// The commands show what an executor gets by the user's and the project's config, and what its agents were refused.
func TestContainCommands(t *testing.T) {
	needContain(t)
	tools := testkit.Dir(t)
	agent := filepath.Join(tools, "agent")
	testkit.Write(t, agent, `#!/bin/bash
[ -z "$1" ] || { echo "$1" >~/.config/login; echo "env $KEY $OTHER"; exit; }
cat >/dev/null
exec 3<>/dev/tcp/127.0.0.1/3128
printf 'CONNECT evil.example.com:443 HTTP/1.1\r\n\r\n' >&3
head -1 <&3
cat ~/.config/login
`)
	must(t, os.Chmod(agent, 0o755))
	ownUser(t, `attempts: {contain: {mode: required, allow: ['own.example.com:443'], pass_env: [KEY]}}
run: {contain: {forward: [5432]}}
executors: {SCRIPTED: {command: [`+agent+`]}, FORGETS: {command: [`+agent+`], contain: {home: new}}}
`)
	t.Setenv("KEY", "k")
	t.Setenv("OTHER", "o")
	root := projectOf(t, jobText("one", "a"), ".deepwork/config.yml",
		"attempts: {contain: {allow: ['shop.example.com:443']}}")
	testkit.Git(t, root, "init", "-q", "-b", "main")
	testkit.Git(t, root, "add", "-A")
	testkit.Git(t, root, "commit", "-q", "-m", "first")

	check := func(args ...string) string {
		t.Helper()
		return strings.Join(strings.Fields(mustPrint(t, root, append([]string{"contain", "check"}, args...)...)), " ")
	}
	testkit.ContainsAll(t, check("SCRIPTED"), []string{
		"Agents of SCRIPTED are contained. They get:", agent, "connects to own.example.com:443 ports", "KEY",
		"keeps the agent's login and settings, in ", "/SCRIPTED",
	})
	testkit.Contains(t, check("FORGETS"), "keeps nothing")
	testkit.Contains(t, check("SCRIPTED", "--run"), "ports of this machine 5432")
	types(t, true, "yes", []string{"deepwork", "trust", "--path", root}, "attempts.contain",
		`allow: "shop.example.com:443"`)
	testkit.Contains(t, check("SCRIPTED"), "connects to shop.example.com:443, own.example.com:443")
	fails(t, root, []string{"contain", "check", "NONE"}, `There is no executor "NONE"`)

	testkit.Contains(t, mustPrint(t, root, "contain", "login", "SCRIPTED", "me"), "env k \n")
	fails(t, root, []string{"contain", "login", "FORGETS"}, "keep no login, since contain has home: new")

	mustPrint(t, root, "board", "add", "Fix it")
	said := mustPrint(t, root, "board", "start", "latest", "--executor", "SCRIPTED")
	testkit.ContainsAll(t, said, []string{"403 Forbidden", "me"})
	testkit.Contains(t, mustPrint(t, root, "contain", "log"),
		"refused evil.example.com:443: it is not among the hosts that are allowed; to allow it: contain: "+
			`{allow: ["evil.example.com:443"]}`)
	testkit.Contains(t, mustPrint(t, root, "contain", "log", "--json"), `"stream":"system","text":"refused evil`)
}
