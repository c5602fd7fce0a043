package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// latest is what commands take in place of an id for the newest one.
const latest = "latest"

// idsHelp is how the help of commands says what they take as an id.
const idsHelp = "ID may be the beginning of an id, or latest"

// A candidate is something that an argument may name by its id.
type candidate struct {
	id, about string // about describes it in one line
	created   time.Time
}

// choose returns the index of the candidate that is meant: the one whose id is given or begins with
// it, or the newest for latest. what names its kind, and lister is the command that lists them.
func choose(what, lister, given string, all []candidate) (int, error) {
	if given == latest {
		newest := -1
		for i, c := range all {
			if newest < 0 || c.created.After(all[newest].created) {
				newest = i
			}
		}
		if newest < 0 {
			return 0, fmt.Errorf("there is no %s, so none is the latest", what)
		}
		return newest, nil
	}
	var found []int
	for i, c := range all {
		if strings.HasPrefix(c.id, strings.ToLower(given)) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("there is no %s whose id begins with %q; '%s' lists them", what, given, lister)
	case 1:
		return found[0], nil
	}
	const shown = 10
	names := make([]string, 0, shown)
	for _, i := range found[:min(len(found), shown)] {
		names = append(names, fmt.Sprintf("%s (%s)", all[i].id, oneLine(all[i].about, titleWidth)))
	}
	if more := len(found) - shown; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return 0, fmt.Errorf("%d %ss have an id that begins with %q; give more of it: %s", len(found), what, given, strings.Join(names, ", "))
}

// idArgument checks that an argument can be an id of a length, the beginning of one, or latest.
func idArgument(cmd *cobra.Command, what, lister, given string, length int) error {
	if given == latest || given != "" && len(given) <= length && strings.Trim(strings.ToLower(given), "0123456789abcdef-") == "" {
		return nil
	}
	return usagef(cmd, "%q is not the id of a %s, nor the beginning of one, nor latest; '%s' prints them", given, what, lister)
}
