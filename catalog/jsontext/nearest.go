package jsontext

import "strings"

// Nearest returns the candidate that name was probably meant to be, or "".
func Nearest(name string, candidates []string) string {
	// A typo is worth guessing at only in a name that a person would type, and the search must not
	// grow with a hostile file.
	if len(name) > 64 || len(candidates) > 1000 {
		return ""
	}
	best, bestDistance := "", 3
	if len(name) < 4 {
		bestDistance = 2
	}
	folded := fold(name)
	for _, c := range candidates {
		if len(c) > 64 || c == "" {
			continue
		}
		if fold(c) == folded {
			return c
		}
		if d := distance(name, c, bestDistance); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// fold removes differences that people introduce by accident.
func fold(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
}

// distance counts the insertions, deletions, substitutions and swaps of neighbors
// between a and b, in bytes. It returns limit if there are that many or more.
func distance(a, b string, limit int) int {
	if diff := len(a) - len(b); diff >= limit || -diff >= limit {
		return limit
	}
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for k := range previous {
		previous[k] = k
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for k := 1; k <= len(b); k++ {
			cost := 1
			if a[i-1] == b[k-1] {
				cost = 0
			}
			current[k] = min(previous[k]+1, current[k-1]+1, previous[k-1]+cost)
			if i > 1 && k > 1 && a[i-1] == b[k-2] && a[i-2] == b[k-1] {
				current[k] = min(current[k], before[k-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return min(previous[len(b)], limit)
}
