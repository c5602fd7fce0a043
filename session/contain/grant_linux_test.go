package contain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/hosts"
)

// toolbox puts scripts in the place of all tools.
func toolbox(t *testing.T, scripts map[string]string) {
	dir := testkit.Dir(t)
	for name, script := range scripts {
		testkit.Write(t, filepath.Join(dir, name), "#!/bin/sh\n"+script+"\n")
		testkit.Must(t, os.Chmod(filepath.Join(dir, name), 0o755))
	}
	t.Setenv("PATH", dir)
}

// The hosts of presets are those that the user's own tools name, wherever a project says it gets packages from.
func TestPresetsAskTheUsersTools(t *testing.T) {
	toolbox(t, map[string]string{
		"go": `echo "https://me:s3cret@go.example.com/x,http://b.example.com:8081|direct"
echo sums.example.com+abc+x`,
		"npm": `echo "https://npm.example.com/$PWD/"`,
		"pip": `/bin/cat <<'X'
:env:.extra-index-url='https://c.example.com/x'
global.extra-index-url='\nhttps://a.example.com/x\nhttps://b.example.com/x'
global.index-url='https://token:s3cret@pip.example.com/simple'
global.trusted-host='evil.example.com'
X`,
	})
	home := testkit.Dir(t)
	t.Setenv("HOME", home)
	allow, env, err := Resolve(t.Context(), hosts.List{"go", "x.example.com:443", "npm", "pip"})
	testkit.Works(t, err)
	testkit.Equal(t, strings.Join(allow, " "), "go.example.com:443 b.example.com:8081 sums.example.com:443 "+
		"x.example.com:443 npm.example.com:443 pip.example.com:443 c.example.com:443 a.example.com:443 "+
		"b.example.com:443")
	testkit.Same(t, env, []string{
		"GOPROXY=https://go.example.com/x,http://b.example.com:8081|direct", "GOSUMDB=sums.example.com+abc+x",
		"npm_config_registry=https://npm.example.com/" + home + "/",
		"PIP_INDEX_URL=https://pip.example.com/simple",
		"PIP_EXTRA_INDEX_URL=https://c.example.com/x https://a.example.com/x https://b.example.com/x",
	})

	toolbox(t, map[string]string{
		"go": `echo off; echo off`, "npm": "echo 'no way' >&2; exit 3",
	})
	for preset, want := range map[string]string{
		"go":  "it has go: go env GOPROXY GOSUMDB names no host; give the hosts that it uses in its place",
		"npm": "it has npm: npm config get registry failed: ",
		"pip": "it has pip: that is not installed here; give the hosts",
	} {
		_, _, err := Resolve(t.Context(), hosts.List{preset})
		testkit.Fails(t, err, want)
	}
	toolbox(t, map[string]string{"pip": "echo \"global.cert='/x'\"", "npm": "echo http://127.0.0.1:4873/"})
	_, _, err = Resolve(t.Context(), hosts.List{"pip"})
	testkit.Fails(t, err, "it has pip: pip config list names no host; give the hosts that it uses")
	_, _, err = Resolve(t.Context(), hosts.List{"npm"})
	testkit.Fails(t, err, "forward: [4873] reaches a port of this machine")
}

func TestFoldersThatCannotBeGiven(t *testing.T) {
	home, state := testkit.Dir(t), testkit.Dir(t)
	t.Setenv("HOME", home)
	dir := filepath.Join(home, "sdk")
	testkit.Write(t, filepath.Join(dir, "file"), "x")
	testkit.Must(t, os.Symlink(dir, filepath.Join(home, "link")))
	testkit.Works(t, CheckFolder(dir, true, state))
	testkit.Works(t, CheckFolder(filepath.Join(dir, "file"), false, state))
	for path, want := range map[string]string{
		filepath.Join(home, "none"):         "does not exist: create it, or leave it out",
		filepath.Join(home, "link"):         "is a link, or in one: give the folder to which it leads, " + dir,
		filepath.Join(home, "link", "file"): "is a link, or in one",
		filepath.Join(dir, "file"):          "is not a folder",
		home:                                "contains your whole home folder",
		filepath.Dir(home):                  "contains your whole home folder",
		"/":                                 "contains your whole home folder",
		state:                               "must be neither in " + state + " nor around it",
		"/proc/self/":                       "is a link",
		"/proc/sys":                         "must be neither in /proc nor around it",
	} {
		testkit.Fails(t, CheckFolder(path, true, state), want, path)
	}
	testkit.Fails(t, CheckFolder(dir, false, filepath.Join(dir, "worktrees")), "nor around it")
}

// What a person grants is in the plan, and what an agent keeps is mounted into an empty home.
func TestGrant(t *testing.T) {
	home, sdk := testkit.Dir(t), testkit.Dir(t)
	t.Setenv("HOME", home)
	t.Setenv("API_KEY", "k")
	t.Setenv("OTHER_KEY", "o")
	p := &Plan{Home: home, Mounts: []Mount{{Path: home, Write: true}}}
	c := config.Contain{Allow: hosts.List{"a.example.com:443"}, Forward: []int{5432}, Read: []string{sdk},
		PassEnv: []string{"API_KEY", "GONE_KEY"}}
	testkit.Works(t, p.Grant(t.Context(), c))
	testkit.Same(t, p.Mounts[1:], []Mount{{Path: sdk, Source: sdk}})
	testkit.Same(t, p.Allow, c.Allow)
	testkit.Same(t, p.Forward, c.Forward)
	testkit.Contains(t, strings.Join(p.Env, "\n"), "\nAPI_KEY=k")
	testkit.Lacks(t, strings.Join(p.Env, "\n"), []string{"OTHER_KEY", "GONE_KEY"})

	kept := filepath.Join(testkit.Dir(t), "home")
	testkit.Works(t, p.UseHome(kept))
	testkit.Same(t, p.Mounts[2], Mount{Path: home + "/.claude", Source: kept + "/.claude", Write: true})
	testkit.Works(t, p.check())
	testkit.Contains(t, strings.Join(p.Env, "\n"), "CLAUDE_CONFIG_DIR="+home+"/.claude")

	c.Write = []string{"/none"}
	testkit.Fails(t, p.Grant(t.Context(), c), "write under contain: /none does not exist")
	c.Write, c.Allow = nil, hosts.List{"pip"}
	toolbox(t, nil)
	testkit.Fails(t, p.Grant(t.Context(), c), "allow under contain: it has pip: that is not installed here")
}
