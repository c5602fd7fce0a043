package figures

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A figure is one row of the table: something that is promised and can be measured.
type figure struct {
	part    string // of the program
	what    string
	op      string  // "<=", "<", ">=" or "", where it is only told
	limit   float64 // what value is held against
	unit    string  // of value and limit; "": a ratio
	value   func(getter) float64
	against string // what it was compared with; {name unit} is replaced by a value
	run     command
	must    bool // a miss is a fault of the program, whatever the machine: the run fails
}

// A command is one command line whose output has the values of figures. It is run
// once for all of them.
type command struct {
	args string // of go, or of proof for a load; by blanks, and no argument has one in it
	env  string // NAME=value, or ""
	runs int    // of a load: how many the medians are of; 0 means 1
}

func (c command) isLoad() bool { return strings.HasPrefix(c.args, "load ") }

// String is the command line as a person types it in the checkout.
func (c command) String() string {
	var b strings.Builder
	if c.env != "" {
		b.WriteString(c.env + " ")
	}
	b.WriteString("go")
	if c.isLoad() {
		b.WriteString(" run ./cmd/proof")
	}
	for word := range strings.FieldsSeq(c.args) {
		b.WriteByte(' ')
		if strings.ContainsAny(word, "^$|()*") {
			word = "'" + word + "'"
		}
		b.WriteString(word)
	}
	return b.String()
}

// values are what the runs of a command printed: by the name of the benchmark or test, or
// "load", and the unit.
type values map[string][]float64

func (v values) add(name, unit string, x float64) {
	v[name+" "+unit] = append(v[name+" "+unit], x)
}

// A getter returns the value of a name and a unit.
type getter func(name, unit string) float64

// getter returns a getter of the medians; the first that is not there it records in err.
func (v values) getter(err *error) getter {
	return func(name, unit string) float64 {
		all := slices.Sorted(slices.Values(v[name+" "+unit]))
		if len(all) == 0 {
			*err = cmp.Or(*err, fmt.Errorf("the output has no %s of %s", unit, name))
			return math.NaN()
		}
		return all[len(all)/2]
	}
}

// one gives a value as it was printed, times scale.
func one(name, unit string, scale float64) func(getter) float64 {
	return func(get getter) float64 { return get(name, unit) * scale }
}

// ratio gives a value by another one.
func ratio(name, unit, otherName, otherUnit string) func(getter) float64 {
	return func(get getter) float64 { return get(name, unit) / get(otherName, otherUnit) }
}

var placeholder = regexp.MustCompile(`\{([^ {}]+) ([^ {}]+)(?: /([0-9e]+))?\}`)

// fill puts values into a text: {name unit}, or {name unit /1e6} for the value by
// a number.
func fill(text string, get getter) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		m := placeholder.FindStringSubmatch(p)
		by := 1.0
		if m[3] != "" {
			by, _ = strconv.ParseFloat(m[3], 64)
		}
		return short(get(m[1], m[2]) / by)
	})
}

// holds reports whether a measured value keeps the bound.
func (f *figure) holds(x float64) bool {
	switch f.op {
	case "<":
		return x < f.limit
	case "<=":
		return x <= f.limit
	case ">=":
		return x >= f.limit
	}
	return true
}

// short prints a number with three digits that tell something.
func short(x float64) string {
	switch a := math.Abs(x); {
	case a >= 100 || x == math.Trunc(x):
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case a >= 0.01:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}
