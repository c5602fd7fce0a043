package config

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/hosts"
	"deepwork/catalog/internal/yamltree"
)

// ContainMode says whether programs that work while nobody looks are contained.
type ContainMode string

// The values of mode, from least to most strict; the default is ContainOff.
const (
	ContainOff      ContainMode = "off"
	ContainOuter    ContainMode = "outer"    // the machine, such as a container, contains them already
	ContainRequired ContainMode = "required" // what cannot be contained is not started
)

var containModes = []ContainMode{ContainOff, ContainOuter, ContainRequired}

// The values of home; the default is HomeKeep.
const (
	HomeKeep = "keep" // an agent's login and settings are kept, in a home of the project and the executor
	HomeNew  = "new"  // the home is empty at each start
)

// A Contain says what programs that work while nobody looks may reach (key contain). In the file, the mode alone is
// enough. Forward, Read, Write and PassEnv come from the user's own config only, as ContainOuter does.
type Contain struct {
	Mode ContainMode `yaml:"mode" as:"contain mode"`
	Home string      `yaml:"home" oneof:"keep,new"`
	// Allow has hosts with their ports and, until they are resolved, names of Presets.
	Allow   hosts.List `yaml:"allow" is:"a list of hosts and presets" each:"contained host"`
	Forward []int      `yaml:"forward" own:"" is:"a list of ports of this machine" min:"1" max:"65535"`
	Read    []string   `yaml:"read" own:"" is:"a list of folders and files" each:"folder"`
	Write   []string   `yaml:"write" own:"" is:"a list of folders" each:"folder"`
	PassEnv []string   `yaml:"pass_env" own:"" is:"a list of names of variables" each:"contained variable"`
}

// Presets are the package managers whose hosts allow may name together, as the user has configured these.
var Presets = []string{"go", "npm", "pip"}

// vendors are the hosts that the known executors need to work.
var vendors = map[string]hosts.List{
	"CLAUDE_CODE":  {"api.anthropic.com:443", "platform.claude.com:443", "claude.ai:443"},
	"CODEX":        {"api.openai.com:443", "auth.openai.com:443", "chatgpt.com:443"},
	"CURSOR_AGENT": {"*.cursor.sh:443"},
	"GEMINI": {"generativelanguage.googleapis.com:443", "cloudcode-pa.googleapis.com:443", "oauth2.googleapis.com:443",
		"accounts.google.com:443"},
}

// with returns what both allow, under the stricter mode and home.
func (c Contain) with(more Contain) Contain {
	if !c.stricter(more) {
		c.Mode = more.Mode
	}
	if more.Home == HomeNew || c.Home == "" {
		c.Home = more.Home
	}
	c.Allow = union(c.Allow, more.Allow)
	c.Forward = union(c.Forward, more.Forward)
	c.Read = union(c.Read, more.Read)
	c.Write = union(c.Write, more.Write)
	c.PassEnv = union(c.PassEnv, more.PassEnv)
	return c
}

// stricter reports whether the mode of c is at least as strict as that of than.
func (c Contain) stricter(than Contain) bool {
	rank := func(m ContainMode) int { return max(0, slices.Index(containModes, m)) } // "" is ContainOff
	return rank(c.Mode) >= rank(than.Mode)
}

// Narrower reports whether c, of a project's config, is at least as strict as than, and allows nothing else.
func (c Contain) Narrower(than Contain) bool {
	return c.stricter(than) && (c.Home == HomeNew || than.Home != HomeNew) &&
		len(union(than.Allow, c.Allow)) == len(union(than.Allow, nil))
}

// strictness returns what of c holds without the user's approval: it allows nothing.
func (c Contain) strictness() Contain { return Contain{Mode: c.Mode, Home: c.Home} }

// union returns the items of both lists, each once, in their order.
func union[L ~[]E, E comparable](a, b L) (all L) {
	for _, item := range slices.Concat(a, b) {
		if !slices.Contains(all, item) {
			all = append(all, item)
		}
	}
	return all
}

// Contained returns what the programs of an executor may reach, in a run or in an attempt of the board: the strictest
// mode that contain of the executor, of attempts and, for a run, of run has, and all that these allow, with the hosts
// of the executor's vendor. Names of presets are still in Allow. Home is never "".
func (c *Config) Contained(executor string, run bool) Contain {
	all := Contain{Mode: ContainOff}.with(c.Attempts.Contain)
	if run {
		all = all.with(c.Run.Contain)
	}
	for _, e := range c.Executors {
		if e.Name == executor {
			all = all.with(e.Contain)
		}
	}
	if all.Home == "" {
		all.Home = HomeKeep
	}
	all.Allow = union(all.Allow, vendors[executor])
	return all
}

// EachContain calls a function for each key contain, with its path.
func (c *Config) EachContain(call func(path string, is Contain)) {
	call("attempts.contain", c.Attempts.Contain)
	call("run.contain", c.Run.Contain)
	for _, e := range c.Executors {
		call("executors."+e.Name+".contain", e.Contain)
	}
}

// contain decodes a mapping, or a mode alone. What the user's own config allows is added to what the project's does.
func contain(d *yamltree.Decoder, v yamltree.Value, to any) {
	c := to.(*Contain)
	if v.Target().Kind != yaml.MappingNode {
		containMode(d, v, &c.Mode)
		return
	}
	before := c.Allow
	c.Allow = nil
	d.Decode(v, c)
	c.Allow = union(before, c.Allow)
}

func containMode(d *yamltree.Decoder, v yamltree.Value, to any) {
	s, ok := d.Text(v, "one of off, required, outer", "contain mode")
	mode := ContainMode(s)
	if ok && mode == ContainOuter && d.Foreign != nil {
		d.Fault(v.At(), "%q does not belong in a project: set it in your own config, %s", s, UserFile())
	}
	*to.(*ContainMode) = mode
}

// containedHost checks what allow may have.
func containedHost(s string) (string, error) {
	if slices.Contains(Presets, s) {
		return s, nil
	}
	at, err := hosts.Parse(s)
	if err != nil && !strings.ContainsAny(s, ".:/") {
		return "", fmt.Errorf("%s is not one of the presets %s, and not a host with its port, such as example.com:443",
			yamltree.Quote(s), strings.Join(Presets, ", "))
	}
	return at, err
}
