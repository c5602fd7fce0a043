package job

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

// A textRule checks a text and returns its fault with the remedy, or "".
type textRule func(s string) string

// text reads a string and checks it. A value that YAML reads as another type is refused, since it
// would look different (1.0 becomes 1).
func (d *decoder) text(v value, rules ...textRule) (string, bool) {
	n, ok := d.Is(v, yaml.ScalarNode, "text")
	if !ok {
		return "", false
	}
	fault := func(s string) string {
		for _, rule := range rules {
			if fault := rule(s); fault != "" {
				return fault
			}
		}
		return ""
	}
	switch n.Tag {
	case "!!str", "!!merge":
	case "!!null":
		d.Empty(v, "text")
		return "", false
	default:
		remedy := fmt.Sprintf("put it in quotes, as in %q", yamltree.Clip(n.Value))
		if fault := fault(n.Value); fault != "" {
			remedy = "put it in quotes; also, " + fault
		}
		d.Fault(yamltree.At(n), "%s is %s, but must be text: %s", yamltree.Clip(n.Value), kindOf(n), remedy)
		return "", false
	}
	if strings.IndexByte(n.Value, 0) >= 0 {
		d.Fault(yamltree.At(n), "contains a NUL character: remove it")
		return "", false
	}
	if fault := fault(n.Value); fault != "" {
		d.Fault(yamltree.At(n), "%s", fault)
		return n.Value, false
	}
	return n.Value, true
}

// into returns the Read of a text. A text that breaks a rule is stored too.
func (d *decoder) into(to *string, rules ...textRule) func(value) {
	return func(v value) { *to, _ = d.text(v, rules...) }
}

// named is into, and also stores the position of a text that breaks no rule.
func (d *decoder) named(to *string, at *spot, rules ...textRule) func(value) {
	return func(v value) {
		var ok bool
		if *to, ok = d.text(v, rules...); ok {
			*at = d.spot(v)
		}
	}
}

// pointer returns the Read of a text that is nil if it has a fault.
func (d *decoder) pointer(to **string) func(value) {
	return func(v value) {
		if s, ok := d.text(v); ok {
			*to = &s
		}
	}
}

// boolean returns the Read of true or false.
func (d *decoder) boolean(to *bool) func(value) {
	return func(v value) {
		n, ok := d.Is(v, yaml.ScalarNode, "true or false")
		if !ok {
			return
		}
		// A tag can claim !!bool for any text, so the text decides as well.
		switch lower := strings.ToLower(n.Value); {
		case n.Tag == "!!bool" && (lower == "true" || lower == "false"):
			*to = lower == "true"
		case n.Tag == "!!null":
			d.Empty(v, "true or false")
		default:
			d.Fault(yamltree.At(n), "%s is not true or false, without quotes", yamltree.Quote(n.Value))
		}
	}
}
