package config

import (
	"fmt"
	"slices"
	"strings"
)

// Rights are what a caller may do beyond the calls that are open to every caller, as a set of bits.
type Rights uint8

// The rights of a token.
const (
	RightAgents Rights = 1 << iota // start agents
	RightMerge                     // merge the work of agents
	RightPerson                    // act as a person

	AllRights = RightAgents | RightMerge | RightPerson
)

var rightNames = []string{"agents", "merge", "person"} // in the order of the bits

// String returns the names of the rights, as ParseRights reads them.
func (r Rights) String() string {
	var names []string
	for i, name := range rightNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseRights reads a list of rights, separated by commas; "" means none.
func ParseRights(s string) (r Rights, err error) {
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		i := slices.Index(rightNames, name)
		switch {
		case i >= 0:
			r |= 1 << i
		case strings.TrimSpace(s) != "":
			return 0, fmt.Errorf("%q is not a right: the rights are %s, separated by commas", clip(name), strings.Join(rightNames, ", "))
		}
	}
	return r, nil
}
