package contain

import (
	"slices"
	"strconv"
	"strings"
)

// Describe returns what the program gets, in two columns.
func (p *Plan) Describe() (rows [][2]string) {
	var read, write, empty, names []string
	etc := 0
	for _, m := range p.Mounts {
		switch {
		case m.Path == ownSelf:
		case m.Source == "":
			empty = append(empty, m.Path)
		case m.Write:
			write = append(write, m.Path)
		case strings.HasPrefix(m.Path, "/etc/"):
			etc++
		default:
			read = append(read, m.Path)
		}
	}
	for _, kv := range p.Env {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var ports []string
	for _, port := range p.Forward {
		ports = append(ports, strconv.Itoa(port))
	}

	add := func(name string, list []string, none string) {
		text := strings.Join(list, ", ")
		if text == "" {
			text = none
		}
		if text != "" {
			rows = append(rows, [2]string{name, text})
		}
	}
	add("reads", append(read, strconv.Itoa(etc)+" of the system's files in /etc"), "")
	add("writes", write, "")
	add("starts with empty", append(empty, "/dev/shm"), "")
	add("connects to", p.Allow, "no host")
	add("ports of this machine", ports, "none")
	add("environment", names, "")
	return rows
}
