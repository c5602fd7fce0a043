package yamltree

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/jsontext"
)

var durationType = reflect.TypeFor[time.Duration]()

// scalar decodes a text, number, boolean or duration.
func (d *Decoder) scalar(v Value, to reflect.Value, f *field) {
	switch {
	case to.Type() == durationType:
		d.duration(v, to, f)
	case to.Kind() == reflect.String:
		text, _ := d.text(v, f)
		to.SetString(text)
	case to.Kind() == reflect.Bool:
		const what = "true or false, without quotes"
		n, ok := d.Is(v, yaml.ScalarNode, what)
		var b bool
		if ok && (n.ShortTag() != "!!bool" || n.Decode(&b) != nil) {
			d.Wrong(v, what)
		}
		to.SetBool(b)
	case to.Kind() == reflect.Int:
		x, ok := d.Number(v, cmp.Or(f.is, "a whole number"), bound(f.min, 0), bound(f.max, math.MaxInt32), "!!int")
		if ok {
			to.SetInt(int64(x))
		}
	case to.Kind() == reflect.Float64:
		x, ok := d.Number(v, cmp.Or(f.is, "a number"), bound(f.min, 0), bound(f.max, math.MaxInt32), "!!int", "!!float")
		if ok {
			to.SetFloat(x)
		}
	default:
		panic(fmt.Sprintf("yamltree cannot decode a %s", to.Type()))
	}
}

// bound returns the limit of a number in a tag.
func bound(tag string, fallback float64) float64 {
	if tag == "" {
		return fallback
	}

	x, err := strconv.ParseFloat(tag, 64)
	if err != nil {
		panic(err)
	}
	return x
}

// Number returns a number with one of these tags, from least to most.
func (d *Decoder) Number(v Value, what string, least, most float64, tags ...string) (x float64, ok bool) {
	n := v.Target()
	if n.Kind != yaml.ScalarNode || !slices.Contains(tags, n.ShortTag()) || n.Decode(&x) != nil ||
		!(x >= least && x <= most) {
		d.Wrong(v, fmt.Sprintf("%s from %.0f to %.0f", what, least, most))
		return 0, false
	}
	return x, true
}

// Text returns a text that follows the rule of this name; what describes what is expected. A text that breaks
// the rule is also returned, so that other values can be checked against it.
func (d *Decoder) Text(v Value, what, rule string) (text string, ok bool) {
	return d.text(v, &field{is: what, as: rule})
}

func (d *Decoder) text(v Value, f *field) (text string, ok bool) {
	what := cmp.Or(f.is, "a text")
	if f.oneof != nil {
		what = "one of " + strings.Join(f.oneof, ", ")
	}
	n, ok := d.Is(v, yaml.ScalarNode, what)
	if !ok {
		return "", false
	}
	text, err := d.applyRules(n.Value, f)
	switch tag := n.ShortTag(); {
	case tag == "!!null":
		d.Wrong(v, what)
	case tag == "!!str", tag == "!!merge", f.written:
		if err == nil {
			return text, true
		}
		d.Fault(At(n), "%v", err)
		return n.Value, false
	case f.oneof != nil:
		d.Wrong(v, what)
	case err != nil:
		d.Wrong(v, what+": put it in quotes; also, "+err.Error())
	default:
		d.Wrong(v, fmt.Sprintf("%s: put it in quotes, as in %q", what, Clip(n.Value)))
	}

	return "", false
}

// rule returns the rule with this name; "" means none.
func (d *Decoder) rule(name string) Text {
	rule := d.Texts[name]
	if rule == nil && name != "" {
		panic("yamltree has no rule " + name)
	}
	return rule
}

// applyRules returns a text normalized by its rules, or what is wrong with it.
func (d *Decoder) applyRules(text string, f *field) (string, error) {
	rule := d.rule(f.as)
	switch {
	case strings.IndexByte(text, 0) >= 0:
		return "", errors.New("has a NUL byte in it: remove it")
	case f.oneof != nil && !slices.Contains(f.oneof, text):
		fault := Quote(text) + " is not one of " + strings.Join(f.oneof, ", ")
		if near := jsontext.Nearest(text, f.oneof); near != "" {
			fault += ": did you mean " + near + "?"
		}
		return "", errors.New(fault)
	case rule != nil:
		return rule(text)
	}
	return text, nil
}

// duration decodes a number of seconds, or a text like 2m30s.
func (d *Decoder) duration(v Value, to reflect.Value, f *field) {
	const form = "a number of seconds, or a text like 90s or 2m30s"
	least, most := duration(f.min, 0), duration(f.max, 7*24*time.Hour)
	var t time.Duration
	n := v.Target()
	switch tag := n.ShortTag(); {
	case n.Kind == yaml.ScalarNode && (tag == "!!int" || tag == "!!float"):
		var seconds float64
		// Refuse anything beyond the limit, including infinities and NaN, before converting it.
		if n.Decode(&seconds) != nil || math.IsNaN(seconds) || math.Abs(seconds) > 2*most.Seconds() {
			d.Wrong(v, fmt.Sprintf("%s, at most %v", form, most))
			return
		}
		t = time.Duration(math.Round(seconds * float64(time.Second)))
	case n.Kind == yaml.ScalarNode && tag == "!!str":
		var err error
		if t, err = time.ParseDuration(n.Value); err != nil {
			d.Wrong(v, form+"; seconds are written without quotes")
			return
		}
	default:
		d.Wrong(v, form)
		return
	}

	switch {
	case t < 0, t > most, t < least && f.zero == "":
		if f.zero != "" {
			least = 0
		}
		d.Fault(At(n), "is %v; expected %v to %v", t, least, most)
	case t < least && t != 0:
		d.Fault(At(n), "is %v; expected 0 (%s) or at least %v", t, f.zero, least)
	default:
		to.SetInt(int64(t))
	}
}

// duration returns the limit of a duration in a tag.
func duration(tag string, fallback time.Duration) time.Duration {
	if tag == "" {
		return fallback
	}

	t, err := time.ParseDuration(tag)
	if err != nil {
		panic(err)
	}
	return t
}
