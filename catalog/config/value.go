package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
	"deepwork/catalog/jsontext"
)

// maxDuration and maxCount are larger than any sensible value.
const (
	maxDuration = 7 * 24 * time.Hour
	maxCount    = 10_000
)

// kindName names the kind of a value, and shows a scalar.
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
func clip(s string) string { return jsontext.Clip(s, 61) }

// fault reports a fault of a value.
func (p *parser) fault(v value, format string, args ...any) {
	p.Fault(yamltree.At(v.Target()), format, args...)
}

// wrong reports that a value is not what was expected.
func (p *parser) wrong(v value, expected string) {
	p.fault(v, "is %s; expected %s", kindName(v.Target()), expected)
}

// set returns the Read of a key; null keeps its default.
func set(read func(v value, n *yaml.Node)) func(value) {
	return func(v value) {
		if n := v.Target(); !yamltree.IsNull(n) {
			read(v, n)
		}
	}
}

func isText(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" }

// text returns a string.
func (p *parser) text(v value) (string, bool) {
	if !isText(v.Target()) {
		p.wrong(v, "a text")
		return "", false
	}
	return v.Target().Value, true
}

// checked reads a string that check accepts; check returns what is wrong, or "".
func (p *parser) checked(to *string, check func(s string) string) func(value) {
	return set(func(v value, _ *yaml.Node) {
		s, ok := p.text(v)
		if !ok {
			return
		}
		if fault := check(s); fault != "" {
			p.fault(v, "%s", fault)
			return
		}
		*to = s
	})
}

// version also reads 1.0 without quotes, as it is written.
func (p *parser) version(to *string) func(value) {
	return set(func(v value, n *yaml.Node) {
		tag := n.ShortTag()
		if n.Kind != yaml.ScalarNode || tag != "!!str" && tag != "!!float" && tag != "!!int" || strings.TrimSpace(n.Value) == "" {
			p.wrong(v, `a text like "1.0"`)
			return
		}
		*to = n.Value
	})
}

// texts reads a list of strings.
func (p *parser) texts(to *[]string) func(value) {
	return p.textsThat(to, func(v value, s string) (string, bool) { return s, true })
}

// textsThat reads a list of strings, each of which accept checks and returns.
func (p *parser) textsThat(to *[]string, accept func(v value, s string) (string, bool)) func(value) {
	return func(v value) {
		var out []string
		_, ok := p.List(v, "a list of texts", func(_ int, v value) {
			if s, ok := p.text(v); ok {
				if s, ok = accept(v, s); ok {
					out = append(out, s)
				}
			}
		})
		if ok {
			*to = out
		}
	}
}

// choice reads one of several texts.
func choice[T ~string](p *parser, to *T, all ...string) func(value) {
	return set(func(v value, _ *yaml.Node) {
		if s, ok := p.oneOf(v, all...); ok {
			*to = T(s)
		}
	})
}

func (p *parser) oneOf(v value, all ...string) (string, bool) {
	n := v.Target()
	switch {
	case !isText(n):
		p.wrong(v, "one of "+strings.Join(all, ", "))
	case !slices.Contains(all, n.Value):
		p.fault(v, "%q is not one of %s%s", clip(n.Value), strings.Join(all, ", "), didYouMean(jsontext.Nearest(n.Value, all)))
	default:
		return n.Value, true
	}
	return "", false
}

// command reads a command line, or the list of its words; empty means nil.
func (p *parser) command(to *[]string) func(value) {
	return set(func(v value, n *yaml.Node) {
		switch {
		case n.Kind == yaml.SequenceNode:
			*to = nil
			p.List(v, "", func(i int, v value) {
				s, ok := p.text(v)
				switch {
				case ok && i == 0 && strings.TrimSpace(s) == "":
					p.fault(v, "is empty; expected the program to run")
				case strings.ContainsRune(s, 0):
					p.fault(v, "has a NUL byte in it")
				}
				*to = append(*to, s)
			})
		case isText(n):
			words, err := SplitCommand(n.Value)
			if err == nil && len(words) > 0 && strings.TrimSpace(words[0]) == "" {
				err = fmt.Errorf("its first word, the program to run, is empty")
			}
			if err != nil {
				p.fault(v, "is not a command line: %v", err)
				return
			}
			*to = words
		default:
			p.wrong(v, "a command line or the list of its words")
		}
	})
}

// scalar reads a value of one of the tags that accept accepts.
func scalar[T any](p *parser, expected string, accept func(T) bool, to *T, tags ...string) func(value) {
	return set(func(v value, n *yaml.Node) {
		var x T
		if n.Kind != yaml.ScalarNode || !slices.Contains(tags, n.ShortTag()) || n.Decode(&x) != nil || !accept(x) {
			p.wrong(v, expected)
			return
		}
		*to = x
	})
}

// boolean reads true or false.
func (p *parser) boolean(to *bool) func(value) {
	return scalar(p, "true or false", func(bool) bool { return true }, to, "!!bool")
}

// whole reads an integer from least to most.
func (p *parser) whole(least, most int, to *int) func(value) {
	return scalar(p, fmt.Sprintf("a whole number from %d to %d", least, most), func(i int) bool { return i >= least && i <= most }, to, "!!int")
}

// optionalDuration reads a duration of at least 0.
func (p *parser) optionalDuration(to **time.Duration) func(value) {
	return func(v value) {
		d := time.Duration(-1)
		if p.duration(0, &d)(v); d >= 0 {
			*to = &d
		}
	}
}

// duration reads a number of seconds, or a text like 2m30s, of at least least.
func (p *parser) duration(least time.Duration, to *time.Duration) func(value) {
	return p.durationUpTo(maxDuration, least, to)
}

func (p *parser) durationUpTo(most, least time.Duration, to *time.Duration) func(value) {
	return set(func(v value, n *yaml.Node) {
		const form = "a number of seconds, or a text like 90s or 2m30s"
		var d time.Duration
		switch tag := n.ShortTag(); {
		case n.Kind == yaml.ScalarNode && (tag == "!!int" || tag == "!!float"):
			var seconds float64
			// Anything beyond the bound, also infinite and NaN, is refused before it is converted.
			if n.Decode(&seconds) != nil || math.IsNaN(seconds) || math.Abs(seconds) > 2*most.Seconds() {
				p.wrong(v, fmt.Sprintf("%s, at most %v", form, most))
				return
			}
			d = time.Duration(math.Round(seconds * float64(time.Second)))
		case isText(n):
			var err error
			if d, err = time.ParseDuration(n.Value); err == nil {
				break
			}
			if s, err := strconv.ParseFloat(n.Value, 64); err == nil && s >= 0 {
				p.fault(v, "is %s; write it without quotes for seconds, or with a unit, as in 90s", kindName(n))
				return
			}
			p.wrong(v, form)
			return
		default:
			p.wrong(v, form)
			return
		}
		if d < least || d > most {
			p.fault(v, "is %v; expected %v to %v", d, least, most)
			return
		}
		*to = d
	})
}
