package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// maxDuration and maxCount are more than anybody means.
const (
	maxDuration = 7 * 24 * time.Hour
	maxCount    = 10_000
)

// deref follows an alias to what it stands for; aliases of aliases do not exist.
func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kindName says what a node is, for people.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null":
			return "empty"
		case "!!bool":
			return "a boolean (" + clip(n.Value) + ")"
		case "!!int", "!!float":
			return "a number (" + clip(n.Value) + ")"
		}
		return fmt.Sprintf("a text (%q)", clip(n.Value))
	}
	return "an alias"
}

// clip shortens a value for a message.
func clip(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

func member(path, key string) string {
	if path == "" {
		return clip(key)
	}
	return path + "." + clip(key)
}

func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// text returns a string scalar.
func (p *parser) text(n *yaml.Node, path string) (string, bool) {
	if n = deref(n); n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		p.at(n, path, "is %s, and is to be a text", kindName(n))
		return "", false
	}
	return n.Value, true
}

// version takes 1.0 without quotes too, as it is written.
func (p *parser) version(n *yaml.Node, path string, to *string) {
	if n = deref(n); isNull(n) {
		return
	}
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode || tag != "!!str" && tag != "!!float" && tag != "!!int" || strings.TrimSpace(n.Value) == "" {
		p.at(n, path, `is %s, and is to be a text like "1.0"`, kindName(n))
		return
	}
	*to = n.Value
}

func (p *parser) stringList(n *yaml.Node, path string) []string {
	if n = deref(n); isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.at(n, path, "is %s, and is to be a list of texts", kindName(n))
		return nil
	}
	out := make([]string, 0, len(n.Content))
	for i, item := range n.Content {
		if s, ok := p.text(item, element(path, i)); ok {
			out = append(out, s)
		}
	}
	return out
}

func (p *parser) oneOf(n *yaml.Node, path string, all []string) (string, bool) {
	n = deref(n)
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		for _, s := range all {
			if n.Value == s {
				return s, true
			}
		}
		p.at(n, path, "%q is not one of %s%s", clip(n.Value), strings.Join(all, ", "), suggestion(n.Value, all))
		return "", false
	}
	p.at(n, path, "is %s, and is to be one of %s", kindName(n), strings.Join(all, ", "))
	return "", false
}

// command takes a command line, or the list of its words.
func (p *parser) command(n *yaml.Node, path string) []string {
	n = deref(n)
	switch {
	case isNull(n):
		return nil
	case n.Kind == yaml.SequenceNode:
		words := p.stringList(n, path)
		switch {
		case len(n.Content) == 0:
			return nil
		case len(words) > 0 && len(words) == len(n.Content) && strings.TrimSpace(words[0]) == "":
			p.at(n.Content[0], element(path, 0), "is empty, and is to be the program to run")
		}
		for i, w := range words {
			if strings.ContainsRune(w, 0) && len(words) == len(n.Content) {
				p.at(n.Content[i], element(path, i), "has a NUL byte in it")
			}
		}
		return words
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
		words, err := SplitCommand(n.Value)
		if err == nil && len(words) > 0 && strings.TrimSpace(words[0]) == "" {
			err = fmt.Errorf("its first word, the program to run, is empty")
		}
		if err != nil {
			p.at(n, path, "is not a command line: %v", err)
			return nil
		}
		return words
	}
	p.at(n, path, "is %s, and is to be a command line or the list of its words", kindName(n))
	return nil
}

// count takes a whole number of at least least.
func (p *parser) count(n *yaml.Node, path string, least int, to *int) {
	if n = deref(n); isNull(n) {
		return
	}
	var v int
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&v) != nil || v < least || v > maxCount {
		p.at(n, path, "is %s, and is to be a whole number from %d to %d", kindName(n), least, maxCount)
		return
	}
	*to = v
}

// duration takes a number of seconds, or a text like 2m30s; it is 0, where that
// is allowed, or at least least.
func (p *parser) duration(n *yaml.Node, path string, least time.Duration, to *time.Duration) {
	if n = deref(n); isNull(n) {
		return
	}
	const form = "is to be a number of seconds, or a text like 90s or 2m30s"
	if n.Kind != yaml.ScalarNode {
		p.at(n, path, "is %s, and %s", kindName(n), form)
		return
	}
	var d time.Duration
	switch n.ShortTag() {
	case "!!int", "!!float":
		var seconds float64
		// Anything beyond the bound, infinite and NaN too, is out before it is converted.
		if n.Decode(&seconds) != nil || math.IsNaN(seconds) || math.Abs(seconds) > 2*maxDuration.Seconds() {
			p.at(n, path, "is %s, and %s, at most %v", kindName(n), form, maxDuration)
			return
		}
		d = time.Duration(math.Round(seconds * float64(time.Second)))
	case "!!str":
		var err error
		if d, err = time.ParseDuration(n.Value); err != nil {
			if s, numErr := strconv.ParseFloat(n.Value, 64); numErr == nil && s >= 0 {
				p.at(n, path, "is %s; write it without quotes for seconds, or with a unit, as in 90s", kindName(n))
				return
			}
			p.at(n, path, "is %s, and %s", kindName(n), form)
			return
		}
	default:
		p.at(n, path, "is %s, and %s", kindName(n), form)
		return
	}
	if d < least || d > maxDuration {
		p.at(n, path, "is %v, and is to be from %v to %v", d, least, maxDuration)
		return
	}
	*to = d
}
