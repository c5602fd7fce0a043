package schema

import (
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// maxKept is the number of errors after which no further items or members of a value are checked.
const maxKept = 10 * maxViolations

// A sweep checks the items and members of a value in place of the validator, which would check them all and keep
// the errors of each: several gigabytes for an array of 10 MB. A sweep stops at maxKept errors.
type sweep struct {
	names      *jsonschema.Schema
	properties map[string]*jsonschema.Schema // checked by the validator
	patterns   map[jsonschema.Regexp]*jsonschema.Schema
	others     any                // schema of other members, false if there may be none, or nil
	items      *jsonschema.Schema // of the items from that at the index first
	first      int
}

// sweepParts makes sweeps of the keywords for items and members of a schema.
func sweepParts(s *jsonschema.Schema) {
	w := &sweep{names: s.PropertyNames, first: len(items(s))}
	s.PropertyNames = nil

	if _, ok := s.AdditionalProperties.(*jsonschema.Schema); ok || len(s.PatternProperties) > 0 {
		w.properties = s.Properties
		w.patterns = s.PatternProperties
		w.others = s.AdditionalProperties
		s.PatternProperties, s.AdditionalProperties = nil, nil
	}

	w.items, s.Items2020 = s.Items2020, nil
	if all, uniform := s.Items.(*jsonschema.Schema); uniform {
		w.items, s.Items = all, nil
		s.AdditionalItems = nil // it applies only after a list of schemas
	}

	if w.names != nil || w.items != nil || w.patterns != nil || w.others != nil {
		s.Extensions = append(s.Extensions, w)
	}
}

// Validate implements jsonschema.SchemaExt.
func (w *sweep) Validate(ctx *jsonschema.ValidatorContext, value any) {
	kept := 0
	check := func(s *jsonschema.Schema, value any, at string) {
		if err := ctx.Validate(s, value, []string{at}); err != nil {
			ctx.AddErr(err)
			kept += leaves(err.(*jsonschema.ValidationError))
		}
	}

	switch v := value.(type) {
	case []any:
		for i := w.first; w.items != nil && i < len(v) && kept < maxKept; i++ {
			check(w.items, v[i], strconv.Itoa(i))
		}
	case map[string]any:
		var unknown []string
		for name, member := range v {
			if kept >= maxKept {
				break
			}
			if w.names != nil && w.names.Validate(name) != nil {
				ctx.AddError(&kind.PropertyNames{Property: name})
				kept++
			}

			_, known := w.properties[name]
			for pattern, s := range w.patterns {
				if pattern.MatchString(name) {
					known = true
					ctx.EvaluatedProp(name)
					check(s, member, name)
				}
			}
			if others, ok := w.others.(*jsonschema.Schema); ok && !known {
				check(others, member, name)
			} else if w.others == false && !known {
				unknown = append(unknown, name)
			}
		}
		if unknown != nil {
			ctx.AddError(&kind.AdditionalProperties{Properties: unknown})
		}
	}
}

// leaves counts the errors without causes in a tree of errors.
func leaves(e *jsonschema.ValidationError) (n int) {
	for _, cause := range e.Causes {
		n += leaves(cause)
	}
	return max(n, 1)
}
