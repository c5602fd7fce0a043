package task

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxDependencies is how many tasks a task can depend on.
const MaxDependencies = 50

// A Blocker is a task that is not done and that another one depends on. Title and Status are empty
// if the caller does not see it.
type Blocker struct {
	ID, Title string
	Status    Status
}

// A BlockedError refuses to start a task that depends on others that are not done; it is an
// ErrBlocked.
type BlockedError struct {
	TaskID string
	By     []Blocker
}

func (e *BlockedError) Error() string {
	all := make([]string, len(e.By))
	for i, b := range e.By {
		all[i] = b.ID
		if b.Title != "" {
			all[i] += fmt.Sprintf(" (%q, %s)", Clip(b.Title), b.Status)
		}
	}
	return fmt.Sprintf("task %s %v: %s", e.TaskID, ErrBlocked, strings.Join(all, ", "))
}

func (e *BlockedError) Unwrap() error { return ErrBlocked }

// Cyclic returns a task that depends on itself through others, or "" without a cycle.
func Cyclic(dependsOn map[string][]string) string {
	const onWay, done = 1, 2
	state := make(map[string]int)
	var walk func(id string) string
	walk = func(id string) string {
		if state[id] == onWay {
			return id
		}
		if state[id] == done {
			return ""
		}
		state[id] = onWay
		for _, next := range dependsOn[id] {
			if found := walk(next); found != "" {
				return found
			}
		}
		state[id] = done
		return ""
	}
	for _, id := range slices.Sorted(maps.Keys(dependsOn)) {
		if found := walk(id); found != "" {
			return found
		}
	}
	return ""
}

// Cycle returns a way from a task back to itself along its dependencies, which begins and ends with
// it, or nil without a cycle. It looks at each task once.
func Cycle(id string, dependsOn map[string][]string) []string {
	seen := make(map[string]bool)
	var walk func(way []string) []string
	walk = func(way []string) []string {
		for _, next := range dependsOn[way[len(way)-1]] {
			if next == id {
				return append(way, id)
			}
			if seen[next] {
				continue
			}
			seen[next] = true
			if found := walk(append(way, next)); found != nil {
				return found
			}
		}
		return nil
	}
	return walk([]string{id})
}
