package machine

import (
	"maps"
	"slices"

	"deepwork/catalog/jsontext"
	"deepwork/session/outputs"
)

// CheckRoom is outputs.CheckRoom with what the session has.
func (s *State) CheckRoom(values outputs.Map) error { return outputs.CheckRoom(values, s.values) }

// values calls f with each value of a state. f may change it only while the state is being made.
func (s *State) values(f func(v *outputs.Value)) {
	each := func(all outputs.Map) {
		for i := range all {
			all[i].Value.Walk(f)
		}
	}
	steps := func(all jsontext.OrderedMap[*StepProgress]) {
		for _, p := range all {
			each(p.Value.Outputs)
			for _, u := range p.Value.Submissions {
				each(u.Outputs)
			}
		}
	}

	each(s.Inputs)
	steps(s.StepProgress)
	for _, w := range s.History {
		steps(w.Progress)
	}
}

// longTexts returns the texts that a state keeps by hash.
func (s *State) longTexts() map[string]string {
	var all map[string]string
	s.values(func(v *outputs.Value) {
		hash := v.Long()
		if hash == "" {
			return
		}
		if all == nil {
			all = map[string]string{}
		}
		all[hash] = *v.Text
	})
	return all
}

// textChanges returns the parts of long texts added since an earlier state, and the keys of removed ones.
func (s *State) textChanges(before *State) (put, gone []Part, err error) {
	now, was := s.longTexts(), before.longTexts()
	for _, hash := range slices.Sorted(maps.Keys(now)) {
		if _, kept := was[hash]; kept {
			continue
		}

		body, err := jsontext.Encode(now[hash])
		if err != nil {
			return nil, nil, err
		}
		put = append(put, Part{Kind: TextPart, Key: hash, Body: body})
	}
	for _, hash := range slices.Sorted(maps.Keys(was)) {
		if _, kept := now[hash]; !kept {
			gone = append(gone, Part{Kind: TextPart, Key: hash})
		}
	}
	return put, gone, nil
}

// setTexts fills in the texts that a decoded state refers to by hash.
func (s *State) setTexts(texts map[string]string) (err error) {
	s.values(func(v *outputs.Value) {
		if wrong := v.Resolve(texts); wrong != nil {
			err = wrong
		}
	})

	return err
}
