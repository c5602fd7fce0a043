package figures

import (
	"errors"
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
	value   func(values) (float64, error)
	against string // what it was compared with; {name unit} is replaced by a value
	run     command
	must    bool // a miss is a fault of the program, whatever the machine: the run fails
}

// A command is one command line whose output has the values of figures. It is run
// once for all of them.
type command struct {
	program string // "go" or "proof"
	args    string // by blanks; no argument has one in it
	env     string // NAME=value, or ""
	runs    int    // of a load: how many the medians are of; 0 means 1
}

// String is the command line as a person types it in the checkout.
func (c command) String() string {
	var b strings.Builder
	if c.env != "" {
		b.WriteString(c.env + " ")
	}
	if c.program == proof {
		b.WriteString("go run ./cmd/proof")
	} else {
		b.WriteString(c.program)
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

const (
	goTool = "go"
	proof  = "proof"
)

// values are what a command printed: by the name of the benchmark or test, or "load",
// and the unit.
type values map[string]float64

func (v values) get(name, unit string) (float64, error) {
	x, ok := v[name+" "+unit]
	if !ok {
		return 0, fmt.Errorf("the output has no %s of %s", unit, name)
	}
	return x, nil
}

// samples are what several runs of a command printed, likewise.
type samples map[string][]float64

func (s samples) add(name, unit string, x float64) {
	s[name+" "+unit] = append(s[name+" "+unit], x)
}

// medians gives the median of each value.
func (s samples) medians() values {
	v := values{}
	for key, all := range s {
		slices.Sort(all)
		v[key] = all[len(all)/2]
	}
	return v
}

// one gives a value as it was printed, times scale.
func one(name, unit string, scale float64) func(values) (float64, error) {
	return func(v values) (float64, error) {
		x, err := v.get(name, unit)
		return x * scale, err
	}
}

// ratio gives a value by another one.
func ratio(name, unit, otherName, otherUnit string) func(values) (float64, error) {
	return func(v values) (float64, error) {
		x, err := v.get(name, unit)
		y, yerr := v.get(otherName, otherUnit)
		if err = errors.Join(err, yerr); err == nil && y == 0 {
			err = fmt.Errorf("%s of %s is 0", otherUnit, otherName)
		}
		return x / y, err
	}
}

// largest gives the largest of several.
func largest(all ...func(values) (float64, error)) func(values) (float64, error) {
	return func(v values) (most float64, err error) {
		for _, f := range all {
			x, ferr := f(v)
			most, err = max(most, x), errors.Join(err, ferr)
		}
		return most, err
	}
}

var placeholder = regexp.MustCompile(`\{([^ {}]+) ([^ {}]+)(?: /([0-9e]+))?\}`)

// fill puts values into a text: {name unit}, or {name unit /1e6} for the value by
// a number.
func (v values) fill(text string) (filled string, err error) {
	filled = placeholder.ReplaceAllStringFunc(text, func(p string) string {
		m := placeholder.FindStringSubmatch(p)
		x, xerr := v.get(m[1], m[2])
		by := 1.0
		if m[3] != "" {
			by, _ = strconv.ParseFloat(m[3], 64)
		}
		err = errors.Join(err, xerr)
		return short(x / by)
	})
	return filled, err
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
